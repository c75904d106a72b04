// Hands on what the microphone hears, in blocks of 20 ms, on the audio thread. process() copies and counts; the block and the
// message around it are made once, and what the browser clones of them every 20 ms is all that is allocated.
//
// In:  {close}
// Out: {samples: Float32Array, at: the context's frame number of the first of them}

const BLOCK_S = 0.02;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = { samples: new Float32Array(Math.round(BLOCK_S * sampleRate)), at: 0 };
    this.count = 0; // samples in the block
    this.isClosed = false;
    this.port.onmessage = ({ data }) => (this.isClosed ||= data.close);
  }

  process(inputs) {
    const channel = inputs[0][0];
    if (channel) this.copy(channel);
    else this.count = 0; // nothing is connected: a block that began does not go on after the gap
    return !this.isClosed;
  }

  copy(channel) {
    const { samples } = this.block;
    for (let i = 0; i < channel.length; i++) {
      if (this.count === 0) this.block.at = currentFrame + i;
      samples[this.count++] = channel[i];
      if (this.count < samples.length) continue;
      this.port.postMessage(this.block);
      this.count = 0;
    }
  }
}

registerProcessor("stretto-capture", Capture);
