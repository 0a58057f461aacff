"""Faulty settings stop the start of a host: limits and administrators must not be lost for a slip of the pen."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("c.GpuSched.admin_users = ['carol'\n", "the settings cannot be read: SyntaxError"),
        ("import no_such_module\n", "the settings cannot be read: ModuleNotFoundError"),
        ("c.GpuSched.admin_user = ['carol']\n", "there is no setting GpuSched.admin_user\n  Did you mean admin_users?"),
        ("c.GpuSched.limits = {'everybody': {}}\n", "a setting has a wrong value: The 'limits' trait"),
        ("c.GpuSched.overuse = 'never'\n", "a setting has a wrong value: The 'overuse' trait"),
    ],
)
def test_a_host_does_not_start_with_settings_that_are_not_understood(tmp_path, own_environment, text, told):
    config = tmp_path / "config.py"
    config.write_text(text)
    command = [sys.executable, "-m", "jupyter_gpusched.hosts.daemon", f"--config={config}"]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (own_environment / "host.json").exists()
