"""Articles in Postgres, searched in a view of Flask with SQLAlchemy's sessions."""

import os
from typing import Any

from flask import Flask, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

import semlex
from semlex.integrations.sqlalchemy import register, search_models

DATABASE_URL = os.environ["DATABASE_URL"]  # postgresql://semlex:semlex@127.0.0.1:5432/semlex
engine = create_engine(DATABASE_URL.replace("postgresql:", "postgresql+psycopg:", 1))
sessions = sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "articles"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    body: Mapped[str]
    status: Mapped[str] = mapped_column(default="public")


Base.metadata.create_all(engine)
client = semlex.connect_sync(DATABASE_URL)
shop = client.collection("shop")
shop.tables.follow("articles", text=["title", "body"], live=["status"], changes="trigger")
register(Article, shop)
app = Flask(__name__)


@app.post("/articles")
def add() -> tuple[str, int]:
    with sessions.begin() as session:
        session.add(Article(**request.get_json()))
    return "", 201


@app.get("/search")
def search() -> list[dict[str, Any]]:
    with sessions.begin() as session:
        found = search_models(session, Article, request.args["q"], 10, filters="@row.status = 'public'")
        return [{"id": one.id, "title": one.title, "excerpt": one.hit.excerpt} for one in found]
