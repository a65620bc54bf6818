"""The error for a model that the generator can't turn into a CustomResourceDefinition."""


class UnsupportedSchema(TypeError):
    """Raised when a model holds its objects to something that their definition would not: the API server would
    accept objects that the model then refuses, and one of them stops every watcher of the kind."""

    def __init__(self, model: str, path: str, constraint: str, remedy: str) -> None:
        super().__init__(
            f"{model}{path} has {constraint}, which a CustomResourceDefinition made of it would not say: {remedy}"
        )
