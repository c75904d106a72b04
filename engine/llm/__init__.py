"""Language models behind `engine.api.LanguageModel`."""
