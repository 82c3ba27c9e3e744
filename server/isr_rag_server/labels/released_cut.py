"""A cut that few labels of one's own traffic released, as the reference."""

from __future__ import annotations

from pathlib import Path

from isr_rag.core.bounds import mean
from isr_rag.core.settings import Case, Estimate, Settings
from isr_rag.errors import CalibrationMismatchError, ConfigurationError
from isr_rag_server.labels.release import CLIP, Release, ScoredBy


class ReleasedCut:
    """p_ref = 1 - h* from a cut upwards, released for h* by labels of would-be answers, and 0 below the cut.

    Cases at or above the cut are wrong in more than a share h* with probability at most delta over the labels, for
    groups drawn like those collected and one case of each (`isr_rag_server.labels` says how), and for one h*, chosen
    before the labels. The labels were drawn from what this very gate answers, so that the promise is about its answers
    after ISR >= 1 and before the check of quotations and numbers.

    Args:
        release: the released cuts, from `isr-rag calibrate report` or `isr_rag_server.labels.release`.
    """

    needs_scores = True

    def __init__(self, release: Release) -> None:
        self.release = release

    @classmethod
    def load(cls, path: str | Path) -> ReleasedCut:
        """From the file that `isr-rag calibrate report` writes.

        Raises:
            FileNotFoundError: if there is no such file.
            CalibrationCorruptError: if it is not a release, or was altered.
        """
        return cls(Release.load(Path(path)))

    def __repr__(self) -> str:
        return f"ReleasedCut(sha256={self.release.sha256})"

    def reads_alone(self, predicate: str) -> bool:
        """Whether each chunk is also read by itself, as it was when the cases were collected."""
        return self.release.close and predicate == self.release.predicate

    def ceiling(self, predicate: str | None, *, rounds: int = 1) -> float | None:
        """The highest p_ref of any case; None for a loop of acquisition, which was not labelled."""
        if rounds > 1 or predicate not in (None, self.release.predicate):
            return None
        return 1.0 - min(target.h_star for target in self.release.targets)

    def check_belongs(self, settings: Settings) -> None:
        """Refuse the settings of a gate that was not the one labelled.

        Raises:
            CalibrationMismatchError: if the release belongs to another gate, or has no cut for h*.
        """
        own = self.release.scored_by
        wrong = own.differences(ScoredBy.of(settings))
        clip, convention = settings.rule.clip, settings.rule.convention
        if own.orderings is not None and (clip, convention) != (CLIP, "safe"):
            wrong.append(
                f"rule: labelled was what convention='safe' and clip={CLIP:g} answer, "
                f"not convention={convention!r} and clip={clip:g}"
            )
        if wrong:
            raise CalibrationMismatchError(
                f"this release does not belong to this gate. {'; '.join(wrong)}. Use the settings that it was "
                "collected with, or collect and label with these"
            )
        self.release.target(settings.h_star)

    def estimate(self, case: Case) -> Estimate:
        """1 - h* at or above the cut, 0 below it; numbers of chunks that were never collected lie outside.

        Raises:
            ConfigurationError: for a predicate that leaves the target label open (`Choice`), or a loop of acquisition.
            CalibrationMismatchError: if the release belongs to another gate or predicate, or has no cut for h*.
        """
        own = self.release
        if not case.q:
            raise ConfigurationError("a released cut needs a predicate with a fixed target label")
        if case.settings.rounds > 1:
            raise ConfigurationError("a released cut is about single decisions, not about a loop of acquisition")
        self.check_belongs(case.settings)
        if case.predicate.template != own.predicate:
            raise CalibrationMismatchError(
                f"this release is about another predicate: {own.predicate!r} was labelled, not "
                f"{case.predicate.template!r}. Collect and label with this one"
            )
        target = own.target(case.settings.h_star)
        score = mean(case.q)
        if own.close:
            score = min(score, max(case.alone, default=score))
        source = f"cut released by {target.right + target.wrong} labels, {target.wrong} wrong"
        chunks = case.read
        if not own.fewest <= chunks <= own.most:
            return Estimate(0.0, source, outside=f"{chunks} chunks; collected were {own.fewest} to {own.most}")
        answered = target.cut <= score
        return Estimate(1.0 - target.h_star if answered else 0.0, source, guaranteed=answered, pointwise=0.0)
