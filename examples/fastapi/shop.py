"""Articles in Postgres, searched in a view of FastAPI with SQLAlchemy's asynchronous sessions."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import semlex
from semlex.integrations.sqlalchemy import register, search_models

DATABASE_URL = os.environ["DATABASE_URL"]  # postgresql://semlex:semlex@127.0.0.1:5432/semlex
engine = create_async_engine(DATABASE_URL.replace("postgresql:", "postgresql+psycopg:", 1))
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "articles"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    body: Mapped[str]
    status: Mapped[str] = mapped_column(default="public")


class NewArticle(BaseModel):
    title: str
    body: str
    status: str = "public"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with semlex.connect(DATABASE_URL) as client:
        shop = client.collection("shop")
        await shop.tables.follow("articles", text=["title", "body"], live=["status"], changes="trigger")
        register(Article, shop)
        yield
    await engine.dispose()


async def session_of_request() -> AsyncIterator[AsyncSession]:
    async with sessions.begin() as session:
        yield session


app = FastAPI(lifespan=lifespan)
InSession = Annotated[AsyncSession, Depends(session_of_request)]


@app.post("/articles", status_code=201)
async def add(article: NewArticle, session: InSession) -> None:
    session.add(Article(**article.model_dump()))


@app.get("/search")
async def search(q: str, session: InSession, k: int = 10) -> list[dict[str, Any]]:
    found = await search_models(session, Article, q, k, filters="@row.status = 'public'")
    return [{"id": one.id, "title": one.title, "excerpt": one.hit.excerpt} for one in found]
