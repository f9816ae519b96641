"""Language models that write text."""

# `base` is the protocol, `openai` the endpoint that most servers have, `registry` a model by its name.
