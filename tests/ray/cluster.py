"""A Ray cluster of one process tree on 127.0.0.1, with `chat_app` behind the shipped router; ends when its standard input does.

python -m tests.ray.cluster PORT    prints one JSON line twice a second: {"replicas": [names of those that run]}
"""

from __future__ import annotations

import json
import os
import select
import sys

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_SESSION_ID_HEADER_KEY": "x-session-id", "RAY_DEDUP_LOGS": "0"}

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.schema import ReplicaState

from tests.ray.chat_app import Chat

AUTOSCALING = {
    "min_replicas": 1,
    "max_replicas": 2,
    "target_ongoing_requests": 2,
    "upscale_delay_s": 1,
    "downscale_delay_s": 600,
    "look_back_period_s": 2,
    "metrics_interval_s": 0.5,
}


def main(port: int) -> None:
    ray.init(
        num_cpus=4,  # shares of two cores: replicas mostly wait
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    chat = Chat.options(
        num_replicas=None,
        max_ongoing_requests=64,
        autoscaling_config=AUTOSCALING,
        ray_actor_options={"num_cpus": 0.5},
        request_router_config=RequestRouterConfig(request_router_class="session_router.SessionRouter"),
    )
    serve.run(chat.bind(), name="voice", route_prefix="/")
    while not select.select([sys.stdin], [], [], 0.5)[0]:
        replicas = serve.status().applications["voice"].deployments["Chat"].replica_states
        print(json.dumps({"replicas": replicas.get(ReplicaState.RUNNING, 0)}), flush=True)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
