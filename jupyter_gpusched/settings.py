"""What an administrator may set, and what follows from it for the scheduler."""

from __future__ import annotations

import os

from traitlets import Bool, Enum, Float, List, Unicode
from traitlets import Integer as Int
from traitlets.config import Configurable

from .core.model import Settings
from .core.quantities import Mib, parse_mib
from .limits_file import read_limits
from .policy_choice import choose_policy


class GpuSched(Configurable):
    """What an administrator may set, in ``jupyter_server_config.py``, ``jupyter_gpusched_config.py`` or as options."""

    simulate = Unicode(
        None,
        allow_none=True,
        help="Simulated cards instead of real ones: count x size, `2x24G`, or a list, `1x24564M,1x48G`. "
        "The environment variable GPUSCHED_SIMULATE goes before it.",
    ).tag(config=True)
    cpus = Int(0, help="CPUs that jobs which ask for them may share; 0 = all that this process may use.").tag(
        config=True
    )
    memory = Unicode("", help="Host memory that jobs which ask for it may share: `64G`; empty = all there is.").tag(
        config=True
    )
    headroom = Unicode(
        "",
        help="Memory kept free on each card: `512M`; empty = the larger of 256 MiB and 1 % on real cards, "
        "nothing on simulated ones.",
    ).tag(config=True)
    policy = Unicode(
        "default",
        help="Who goes first: `default`, `fifo`, `backfill`, `fair`, or a policy of your own as `module:factory`.",
    ).tag(config=True)
    claim_after_s = Float(
        14400.0, min=0.0, help="Seconds that a job may be passed by others at least before cards are kept for it."
    ).tag(config=True)
    compute_limit = Float(
        2.0,
        min=0.0,
        help="How often over the jobs on one card may fill its processors, as far as that has been seen; 0 = no limit.",
    ).tag(config=True)
    sample_interval_s = Float(1.0, min=0.1, help="Seconds between two looks at the cards.").tag(config=True)
    stale_after_s = Float(10.0, min=1.0, help="Seconds after which a sample of a card places nothing.").tag(config=True)
    release_timeout_s = Float(
        60.0, min=0.0, help="Seconds that an ended job's memory may stay on a card before it counts as foreign use."
    ).tag(config=True)
    foreign_limit = Unicode("512M", help="Foreign use of a card with which a whole-card job still starts.").tag(
        config=True
    )
    overuse = Enum(
        ["warn", "reserve", "kill", "kill-under-pressure"],
        "warn",
        help="What a job meets that uses more than it was promised: `warn` tells its owner; `reserve` also raises its "
        "promise, for later attempts too; `kill` ends it; `kill-under-pressure` ends it only while another job is "
        "short of memory it was promised, or waits that would fit without the overrun.",
    ).tag(config=True)
    overuse_factor = Float(
        1.05, min=1.0, help="A job overruns its promise when it uses more than this factor of it and `overuse_margin`,"
    ).tag(config=True)
    overuse_margin = Unicode("256M", help="more than so much on top,").tag(config=True)
    overuse_samples = Int(3, min=1, help="in so many samples of its card in a row.").tag(config=True)

    log_limit = Unicode(
        "1G",
        help="How much of the log of an attempt stays on disk, at least `1M`: its head, and its newest half or more. "
        "Empty = all.",
    ).tag(config=True)

    cgroups = Bool(
        True, help="Whether each attempt gets a cgroup (version 2) of its own, where a trial shows that this works."
    ).tag(config=True)

    isolation = Enum(
        ["none", "bwrap"],
        "none",
        help="What hides from jobs of a service for several users what is not theirs: with `bwrap` (bubblewrap, as "
        "root) a job sees only its own cards' device files, and a `/tmp` of its own that is gone with it.",
    ).tag(config=True)

    supervisors_ready = Int(
        4,
        min=0,
        help="Supervisors kept ready once the first job was started, so that others start at once; 0 = none.",
    ).tag(config=True)

    cells_prepared = Int(
        2,
        min=0,
        help="For so many kinds of cells (by interpreter, folder and environment) a process with IPython loaded is "
        "kept prepared, from a second after the first one until none has come for 10 minutes; 0 = none.",
    ).tag(config=True)

    def log_bytes(self) -> int | None:
        """The limit of a log; None where there is none."""
        return parse_mib(self.log_limit) * 2**20 if self.log_limit else None

    idle_after_s = Float(
        1800.0, min=1.0, help="Seconds for which a card must be seen doing nothing before its holders get an alert."
    ).tag(config=True)
    idle_above_pct = Float(
        1.0, min=0.0, max=100.0, help="Utilisation in percent above which a card counts as doing something."
    ).tag(config=True)
    quarantine_check = Unicode(
        "",
        help="Command that tries a card which the scheduler itself quarantined: it is run with the card's UUID as its "
        "last argument and in CUDA_VISIBLE_DEVICES, and exit code 0 gives the card jobs again. Empty = a person does.",
    ).tag(config=True)
    quarantine_check_interval_s = Float(300.0, min=0.1, help="Seconds between two tries of quarantined cards.").tag(
        config=True
    )
    quarantine_check_timeout_s = Float(120.0, min=0.1, help="Seconds that one try may take.").tag(config=True)
    admin_users = List(
        Unicode(), help="Users who see and end everybody's jobs and run the machine, on a host for several users."
    ).tag(config=True)
    admin_groups = List(
        Unicode(), help="The same for all members of these groups. To be root makes nobody an administrator."
    ).tag(config=True)
    limits = Unicode(
        "",
        help="File with what users may have at a time (TOML; see the how-to on a shared machine). Empty = no limits.",
    ).tag(config=True)
    requests_per_s = Float(
        50.0,
        min=0.0,
        help="Requests that each user may go on sending a second, on a host for several users; 0 = any number.",
    ).tag(config=True)
    requests_at_once = Int(200, min=1, help="Requests that each user may send at once, before that rate counts.").tag(
        config=True
    )
    largest_request = Unicode(
        "",
        help="Largest request that is read, with what it brings along: `64M`; empty = what clients send at most, 513M.",
    ).tag(config=True)
    events_kept_days = Float(
        90.0, min=0.0, help="Days for which events stay in the journal; those of live jobs stay anyway."
    ).tag(config=True)
    events_kept = Int(
        500_000, min=0, help="Events that the journal keeps at most; those of live jobs stay anyway."
    ).tag(config=True)
    jobs_kept_days = Float(
        180.0,
        min=0.0,
        help="Days for which jobs that have ended stay, with their logs, results and checkpoints; 0 = for ever.",
    ).tag(config=True)
    jobs_kept = Int(100_000, min=0, help="Jobs that have ended of which the newest stay at most; 0 = any number.").tag(
        config=True
    )
    report_activity = Bool(
        True,
        help="Whether a Jupyter server counts as active while its owner has unfinished jobs, so that nothing that "
        "stops idle servers (JupyterHub's idle culler) stops it.",
    ).tag(config=True)
    activity_interval_s = Float(
        60.0, min=0.1, help="Seconds between two reports of activity; idle timeouts must be longer."
    ).tag(config=True)

    def largest_body(self) -> int | None:
        """Bytes; None for as much as clients send."""
        return parse_mib(self.largest_request) * 2**20 if self.largest_request else None

    def settings(self) -> Settings:
        return Settings(
            cpus=self.cpus or len(os.sched_getaffinity(0)),
            memory=parse_mib(self.memory) if self.memory else _machine_memory(),
            headroom=parse_mib(self.headroom) if self.headroom else None,
            claim_after_s=self.claim_after_s,
            stale_after_s=self.stale_after_s,
            release_timeout_s=self.release_timeout_s,
            foreign_limit=parse_mib(self.foreign_limit),
            overuse=self.overuse,
            overuse_factor=self.overuse_factor,
            overuse_margin=parse_mib(self.overuse_margin),
            overuse_samples=self.overuse_samples,
            idle_after_s=self.idle_after_s,
            idle_above_pct=self.idle_above_pct,
            compute_limit=self.compute_limit,
            policy=choose_policy(self.policy),
            limits=read_limits(self.limits),
        )

    def simulation(self) -> str | None:
        """What is simulated, or None for real cards."""
        return os.environ.get("GPUSCHED_SIMULATE") or self.simulate or None


def _machine_memory() -> Mib:
    return Mib(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20)
