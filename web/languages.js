// Names of languages for people.

const names = new Intl.DisplayNames(["en"], { type: "language" });

/** "English" for "en"; a tag that is none is shown as it is. */
export function languageName(tag) {
  try {
    return names.of(tag);
  } catch {
    return tag;
  }
}
