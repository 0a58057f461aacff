"""A host whose policy is of somebody's own and fails: jobs run, and everybody who should know is told."""

import os

POLICY = """
from jupyter_gpusched.core.policies import Policy

class Mine(Policy):
    def order(self, job):
        return {}["late"]
"""


def test_a_host_lives_on_with_the_default_policy_and_says_so(start_host, tmp_path):
    (tmp_path / "policy_that_fails.py").write_text(POLICY)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    host = start_host("1x8G", "--GpuSched.policy=policy_that_fails:Mine", environ={"PYTHONPATH": path})
    client = host.client()
    jobs = [client.submit({"kind": "command", "argv": ["true"], "vram": "8G"}) for _ in range(3)]
    assert [client.wait(job)["phase"] for job in jobs] == ["succeeded"] * 3
    words = (
        "The policy of this machine failed, and `default` decides instead: KeyError: 'late' (policy_that_fails.py:6)."
    )
    (alert,) = client.alerts()
    assert (alert["kind"], alert["message"], alert["hint"]) == ("policy", words, "Mend it and start this host again.")
    health = client.health()
    assert (health["status"], words in health["causes"]) == ("degraded", True)
    log = host.log.read_text()
    assert log.count("the policy policy_that_fails:Mine failed") == 1
    assert 'return {}["late"]' in log
