"""What a typical user writes, for `test_typing.py`. Never run; each line marked with `error` must be one for mypy."""

from datetime import timedelta

from redisched import Call, Context, Job, Retry, Scheduler

sched = Scheduler()


@sched.job
async def plain(x: int, *, loud: bool = False) -> str:
    return str(x)


@sched.job(timeout=3, retry=Retry(max_attempts=2), keep_result=timedelta(hours=1))
def with_context(ctx: Context, x: int) -> int:
    return x + ctx.attempt


async def use() -> None:
    async with sched:
        text: str = await (await sched.enqueue(plain(1, loud=True))).result()
        number: int = await (await sched.enqueue(with_context(2), delay=3)).result(timeout=2)
        named = await sched.enqueue(Call("plain", 1))
        many: list[Job[str]] = await sched.enqueue_many([plain(n) for n in range(3)])
        here: str = await plain(1)
        print(text, number, named, many, here)
        plain("one")  # error
        plain()  # error
        with_context(2, 3)  # error
        wrong: int = await plain(1)  # error
        print(wrong)
