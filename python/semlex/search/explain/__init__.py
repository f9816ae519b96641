"""Why a document is where it is in an answer, and what an answer rests on."""
