"""Publishes over MQTT the daemon's events, the statuses of its consumers, and the commits in their queues. Sends the
events to the webhook.

A task computes the consumers' statuses regularly, and soon after each event. The publisher sends only the statuses that
differ from the statuses that the broker retains. This module only puts messages into the outboxes, so it never waits
for the broker or for the webhook's receiver.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dispatcher.leadership.role import Role
from dispatcher.runtime.commit_feed import QueuedCommits, follow_commits
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.settings.model import Settings
from dispatcher.settings.mqtt import MqttSettings
from dispatcher.settings.webhook import WebhookSettings
from dispatcher.telemetry.bodies import Bodies
from dispatcher.telemetry.lifecycle import AnnouncingLog, LifecycleEvent, LineLog
from dispatcher.telemetry.metrics import MqttCounts, WebhookCounts
from dispatcher.telemetry.mqtt.topics import Topics
from dispatcher.telemetry.outbox import MessageKind, Outbox
from dispatcher.telemetry.webhook.sender import WebhookSender

if TYPE_CHECKING:
    from dispatcher.telemetry.mqtt.publisher import MqttPublisher

SOON_S = 0.2  # how long the task waits after an event, so that it computes the statuses once for several events


class Announcements:
    """Puts the daemon's events, statuses and commits into the outboxes. `log`: the daemon's log; its events are also
    published. Without MQTT settings nothing is published, and without webhook settings nothing is sent."""

    def __init__(
        self,
        log: LineLog,
        daemon: str,
        on_error: Callable[[str, BaseException], None],
        role: Callable[[], Role | None] = lambda: None,
    ) -> None:
        """`daemon`: the id of the state store; `on_error` is called with the name and error of each task that ends
        because of a defect; `role` returns the role of this daemon, or None if the state is in a file."""
        self.log = AnnouncingLog(log, self._happened)
        self._daemon = daemon
        self._tasks = Tasks(on_error)
        self._role = role
        self._settings: MqttSettings | None = None
        self._sessions: ConsumerSessions | None = None
        self._commits: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._outbox = Outbox(1)
        self._topics = Topics("")
        self._bodies = Bodies(daemon, ())
        self._publisher: MqttPublisher | None = None
        self._webhook: WebhookSender | None = None

    def counts(self) -> MqttCounts | None:
        """Returns the counts for the metrics; None without a broker."""
        publisher = self._publisher
        if publisher is None:
            return None
        dropped = {str(kind): count for kind, count in self._outbox.dropped.items()}
        return MqttCounts(publisher.connected, publisher.connections, publisher.published, dropped)

    def webhook_counts(self) -> WebhookCounts | None:
        """Returns the counts for the metrics; None without a webhook."""
        return None if self._webhook is None else self._webhook.counts()

    async def apply(
        self, settings: Settings, sessions: ConsumerSessions | None, secrets: Collection[str]
    ) -> None:
        """Apply the settings of MQTT and of the webhook, at the start, after each reload, and when the daemon begins or
        ceases to lead.

        `sessions`: the sessions of all consumers, None on a standby; `secrets`: the secrets of these settings and of
        earlier ones.
        """
        if sessions is not self._sessions:
            self._forget_commits()
            self._sessions = sessions
            if sessions is None:  # not in the task, which does not run again if the daemon ends
                self._clear_all_but(set(self._put_role()))
        self._bodies = Bodies(self._daemon, secrets)
        self._apply_webhook(settings.webhook)
        if settings.mqtt != self._settings:
            await self._end(clear=_moved(self._settings, settings.mqtt))
            self._settings = settings.mqtt
        if self._settings is None:
            return
        if self._publisher is None:
            self._begin(self._settings)
        else:
            self._publisher.connect_now()
        if sessions is not None:
            self._follow(settings, sessions)
        self._changed.set()

    async def stop(self) -> None:
        """Send the waiting messages, and publish the message that the daemon is offline. Takes at most 3 s."""
        webhook, self._webhook = self._webhook, None
        if webhook is None:
            await self._end(clear=False)
        else:
            await asyncio.gather(self._end(clear=False), in_thread("webhook end", webhook.stop))

    # -- the webhook -----------------------------------------------------------------------------------------

    def _apply_webhook(self, settings: WebhookSettings | None) -> None:
        old = self._webhook
        if old is not None and old.settings == settings:
            old.retry_now()
            return
        waiting = [] if old is None else old.leave()
        self._webhook = None if settings is None else WebhookSender(settings, waiting)
        if self._webhook is not None:
            self._webhook.start()

    # -- the publisher ---------------------------------------------------------------------------------------

    def _begin(self, settings: MqttSettings) -> None:
        from dispatcher.telemetry.mqtt.publisher import MqttPublisher  # noqa: PLC0415 - slow to load

        self._topics = Topics(settings.prefix)
        self._outbox = Outbox(settings.max_queued_messages)
        # The outbox must contain the present statuses before the broker sends the retained statuses.
        if self._sessions is not None:
            for row, _ in self._sessions.rows_with_consumers():
                self._put_status(row)
        self._publisher = MqttPublisher(settings, self._outbox, self._topics, self._bodies)
        self._publisher.start()
        self._tasks.start("mqtt statuses", self._publish_statuses(settings))

    async def _end(self, *, clear: bool) -> None:
        await self._tasks.cancel_all()
        self._commits.clear()
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            if clear:
                self._outbox.clear_all_statuses()
            await in_thread("mqtt end", publisher.stop)

    # -- messages --------------------------------------------------------------------------------------------

    def _happened(self, event: LifecycleEvent) -> None:
        if self._publisher is None and self._webhook is None:
            return
        body = self._bodies.event(event)
        if self._publisher is not None:
            self._outbox.put(MessageKind.EVENT, self._topics.event(event), body)
            self._changed.set()
        if self._webhook is not None:
            self._webhook.put(event, body)

    def _put_status(self, row: Mapping[str, Any]) -> None:
        topic = self._topics.status(row["name"])
        self._outbox.put(MessageKind.STATUS, topic, self._bodies.status(row))

    async def _publish_statuses(self, settings: MqttSettings) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.status_seconds):
                    await self._changed.wait()
                await asyncio.sleep(SOON_S)
            self._changed.clear()
            present = set(self._put_role())
            if (sessions := self._sessions) is not None:
                async for row in sessions.rows():
                    present.add(self._topics.status(row["name"]))
                    self._put_status(row)
            self._clear_all_but(present)

    def _clear_all_but(self, topics: Collection[str]) -> None:
        for topic in self._outbox.topics().difference(topics):
            self._outbox.put(MessageKind.STATUS, topic, b"")

    def _put_role(self) -> Iterator[str]:
        """Publish the role, if there are several daemons. Yields the topic of the role."""
        role = self._role()
        if role is not None:
            self._outbox.put(
                MessageKind.STATUS, self._topics.role, self._bodies.role(role.as_dict())
            )
            yield self._topics.role

    def _forget_commits(self) -> None:
        for task in self._commits.values():
            task.cancel()
        self._commits.clear()

    def _follow(self, settings: Settings, sessions: ConsumerSessions) -> None:
        wanted = {name for name, one in settings.consumers.items() if one.mqtt.commits}
        for name in self._commits.keys() - wanted:
            self._commits.pop(name).cancel()
        for name in wanted - self._commits.keys():
            follow = follow_commits(sessions, name, self._committed)
            self._commits[name] = self._tasks.start(f"mqtt commits {name}", follow)

    def _committed(self, commits: QueuedCommits) -> None:
        body = self._bodies.commit(
            commits.consumer,
            commits.position,
            transactions=commits.transactions,
            bytes_=commits.bytes,
            committed_s=commits.committed_s,
            at_s=time.time(),
        )
        self._outbox.put(MessageKind.COMMIT, self._topics.commits(commits.consumer), body)


def _moved(old: MqttSettings | None, new: MqttSettings | None) -> bool:
    """True if the statuses of the old settings must be cleared: the broker or the prefix changes, or MQTT is turned
    off."""
    return old is not None and (new is None or (old.url, old.prefix) != (new.url, new.prefix))
