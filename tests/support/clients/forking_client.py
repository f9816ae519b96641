"""Opens a retriever and lets processes work with it that were made after; what test_forks runs.

Arguments: as JSON, `models` (names or folders, one after another), `way` (``os``, ``fork``, ``spawn`` or
``asynchronous``), and `options` of the retrievers. Prints for each what every child found, and at last the parent.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import warnings

from semlex import PostgreSQLRetriever, SyncRetriever
from semlex.errors import SemlexError
from semlex.proof.children import say

CHILDREN = 2


def use(retriever, child):
    retriever.add_texts([f"said by child {child}"], ids=[f"child {child}"])
    return [hit.id for hit in retriever.search("said by the parent", 1)]


def make(model, options):
    return SyncRetriever(embedding_model=model, use_reranking=False, **options)


def in_forked_child(retriever, child):
    try:
        found = use(retriever, child)
    except SemlexError as error:
        found = [f"{type(error).__name__}: {error}"]
    say(json.dumps(found))


def in_spawned_child(model, options, child):
    with make(model, options) as retriever:
        say(json.dumps(use(retriever, child)))


def synchronous(model, way, options):
    with make(model, options) as retriever:
        retriever.add_texts(["said by the parent"], ids=["parent"])
        say(json.dumps(use(retriever, 0)))
        if way == "os":
            for child in range(1, CHILDREN + 1):
                if not os.fork():
                    in_forked_child(retriever, child)
                    sys.exit()  # through the end of the program, as the parent
            for _ in range(CHILDREN):
                if os.wait()[1]:
                    say("a child failed")
        else:
            begin = multiprocessing.get_context(way).Process
            target, given = (in_forked_child, [retriever]) if way == "fork" else (in_spawned_child, [model, options])
            children = [begin(target=target, args=(*given, child)) for child in range(1, CHILDREN + 1)]
            for process in children:
                process.start()
            for process in children:
                process.join()
                if process.exitcode:
                    say("a child failed")
        say(json.dumps([*(hit.id for hit in retriever.search("said by the parent", 1)), retriever.count()]))


def asynchronous(model, options):
    """Each process works in an event loop of its own."""
    retriever = PostgreSQLRetriever(embedding_model=model, use_reranking=False, **options)

    async def work(child):
        try:
            await retriever.add_texts([f"said by child {child}"], ids=[f"child {child}"])
            found = [hit.id for hit in await retriever.search("said by child 0", 1)]
        except SemlexError as error:
            found = [f"{type(error).__name__}: {error}"]
        say(json.dumps(found))

    async def in_child():
        await asyncio.gather(work(1), work(2))  # both find it closed
        await retriever.close()

    with asyncio.Runner() as runner:
        runner.run(retriever.initialize())
        runner.run(work(0))
        if not os.fork():
            asyncio.run(in_child())
            os._exit(0)
        if os.wait()[1]:
            say("a child failed")
        runner.run(work(3))
        say(json.dumps([runner.run(retriever.count())]))
        runner.run(retriever.close())


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    # From 3.12 on, Python warns of a fork beside threads; that it works all the same is what is tested.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    for number, model in enumerate(settings["models"]):
        options = {"collection": f"words_{number}", **settings["options"]}
        way = settings["way"]
        asynchronous(model, options) if way == "asynchronous" else synchronous(model, way, options)
