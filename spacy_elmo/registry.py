"""Named weights. A package publishes a model by an entry point of the group
`spacy_elmo_weights`: a function without arguments that returns the model's path.
"""

import catalogue

weights = catalogue.create("spacy_elmo", "weights", entry_points=True)
