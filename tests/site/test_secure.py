"""Between hosts: the same guarantee, and whoever is not who he says, or asks for what is not his, is refused,
counted, and disturbs nobody."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest
from embedded import assert_ideal, loads, run
from test_cluster import NAMES, SITES, Trouble, a_plan_comes, a_site_goes_and_comes_back, inputs, plan, query

from anabranch.site.cluster import Cluster


@pytest.mark.parametrize("trouble", [a_site_goes_and_comes_back, a_plan_comes])
def test_what_arrives_is_the_ideal_run_whatever_happens(trouble: Trouble, tmp_path: Path) -> None:
    async def work() -> None:
        async with Cluster(query(), SITES, plan(), tmp_path, secure=True) as cluster:
            collecting = asyncio.create_task(cluster.collect())
            feeding = asyncio.create_task(cluster.feed(inputs()))
            await asyncio.sleep(2)
            await trouble(cluster)
            await feeding
            assert_ideal(query(), inputs(), await collecting, plan())

    run(work())
