"""Publishes the outbox to the broker, from a thread with an event loop of its own.

The broker cannot delay the daemon's event loop: the loop and the thread share only the outbox, whose calls never wait.
After a fault the thread connects again, with a backoff. After each connect it sends all statuses again, because the
broker may have lost them.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import aiomqtt
import structlog

from dispatcher.settings.mqtt import MqttSettings
from dispatcher.telemetry.backoff import Backoff
from dispatcher.telemetry.bodies import Bodies
from dispatcher.telemetry.mqtt.topics import Topics
from dispatcher.telemetry.outbox import MessageKind, Outbox, OutMessage

ONLINE, OFFLINE = b"online", b"offline"
ANSWER_S = 10.0  # how long the broker may take for any answer
IN_FLIGHT = 20  # how many messages may wait for an acknowledgement
STOP_S = 2.0  # how long the publisher may take at its end to publish the waiting messages
SWEEP_S = 5.0  # how long to wait for the retained messages

_REMEDIES = (
    ("user name or password", "correct mqtt.user and mqtt.password_file"),
    ("authori", "correct mqtt.user and mqtt.password_file, or the broker's access rules"),
    ("protocol version", "set mqtt.protocol to 3.1.1"),
    ("certificate", "set mqtt.tls.ca to the authority of the broker's certificate"),
    ("refused", "check mqtt.url, the firewall, and that the broker is running"),
    ("disconnected", "look whether the broker runs, and at its log"),
)
_REMEDY = "check mqtt.url, the network, and the broker's log"
_PROTOCOLS = {"5": aiomqtt.ProtocolVersion.V5, "3.1.1": aiomqtt.ProtocolVersion.V311}


class _BrokerClient(aiomqtt.Client):
    def abandon(self) -> None:
        """Close the socket at once. The library leaves it open if the broker does not answer."""
        if self._misc_task is not None:
            self._misc_task.cancel()
        connected = self._client.socket()
        if connected is not None:
            self._loop.remove_reader(connected)
            self._loop.remove_writer(connected)
            connected.close()


class MqttPublisher:
    """Keeps one connection to the broker: connects again after a fault, as long as the thread runs."""

    def __init__(
        self, settings: MqttSettings, outbox: Outbox, topics: Topics, bodies: Bodies
    ) -> None:
        self.settings = settings
        self.connected = False
        self.connections = self.published = 0
        self._outbox = outbox
        self._topics = topics
        self._bodies = bodies
        self._log = structlog.get_logger("dispatcher").bind(broker=str(settings.url))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._woken = False
        self._ending = self._left = self._hurried = False
        self._dropped = 0  # the number of dropped messages that were logged
        self._drops_logged = False
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Publish the waiting messages, and then that the daemon is offline. If the broker does not answer, give up
        after 3 s."""
        self._ending = True
        self._notify()
        self._thread.join(STOP_S + 1 if self.connected else 0)
        # If the thread still runs, it must not report the daemon as offline: another publisher may have reported it as
        # online. If there is no other publisher, the broker publishes the last will.
        self._left = self._thread.is_alive()

    def connect_now(self) -> None:
        """Connect at once if there is no connection, because a reload may have removed the cause of the fault."""
        self._hurried = True
        self._notify()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            loop.set_default_executor(_DaemonThreads())
            self._loop = loop
            self._outbox.on_message = self._notify
            try:
                runner.run(self._keep_connected())
            finally:
                self._outbox.on_message = _nothing
                self._loop = None

    def _notify(self) -> None:
        """Wake the publishing thread; may be called from any thread. Logs dropped messages, once per connection."""
        loop, dropped = self._loop, sum(self._outbox.dropped.values())
        if dropped > self._dropped and not self._drops_logged:
            self._drops_logged = True
            why = "the broker does not answer, or is too slow"
            self._log.warning("mqtt messages are dropped", dropped=dropped, reason=why)
        if loop is None or self._woken:
            return
        self._woken = True
        try:
            loop.call_soon_threadsafe(self._wake_up)
        except RuntimeError:  # the loop has just ended
            self._loop = None

    def _wake_up(self) -> None:
        self._woken = False
        self._wake.set()

    async def _keep_connected(self) -> None:
        backoff = Backoff()
        while not self._ending:
            connections, self._hurried = self.connections, False
            try:
                await self._session()
            except* Exception as group:  # noqa: BLE001
                # Bytes of a broker can cause any error in the library. Such an error ends only this connection.
                error = _first(group)
                self.connected = False
                if self.connections != connections:
                    backoff.reset()
                wait_s = backoff.next_s()
                # Log the error of each attempt, because the first error often says only that the connection has ended,
                # and the next error says why. `Repeats` counts repetitions.
                retry_s = round(wait_s, 1)
                self._log.warning("mqtt not connected", error=_explained(error), retry_s=retry_s)
                await self._pause(wait_s)
                if self._hurried:
                    backoff.reset()

    async def _pause(self, seconds: float) -> None:
        """Wait, but return at once if the daemon ends or `connect_now` is called."""
        try:
            async with asyncio.timeout(seconds):
                while not (self._ending or self._hurried):
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass

    async def _session(self) -> None:
        """Connect, and publish. Returns when the daemon ends; raises an exception when the connection ends."""
        client = self._client()
        try:
            async with client:
                if self._ending:
                    return
                self.connections += 1
                self.connected = True
                dropped = sum(self._outbox.dropped.values())
                self._log.info("mqtt connected", dropped=dropped - self._dropped)
                self._dropped, self._drops_logged = dropped, False
                await client.publish(
                    self._topics.daemon, ONLINE, qos=self.settings.qos, retain=True
                )
                self._outbox.send_all_statuses()
                async with asyncio.TaskGroup() as tasks:
                    # `receiving` also notices that the connection has ended.
                    receiving = tasks.create_task(self._receive(client))
                    sweeping = tasks.create_task(self._sweep(client))
                    await self._send(client)
                    receiving.cancel()
                    sweeping.cancel()
                if self._left:
                    return
                await client.publish(
                    self._topics.daemon, OFFLINE, qos=self.settings.qos, retain=True
                )
        finally:
            self.connected = False
            client.abandon()

    def _client(self) -> _BrokerClient:
        settings = self.settings
        client = _BrokerClient(
            settings.url.host,
            settings.url.port,
            username=settings.user,
            password=settings.secret,
            identifier=settings.identifier,
            protocol=_PROTOCOLS[settings.protocol],
            will=aiomqtt.Will(self._topics.daemon, OFFLINE, settings.qos, retain=True),
            timeout=ANSWER_S,
            keepalive=settings.keepalive_seconds,
            max_queued_incoming_messages=settings.max_queued_messages,
            tls_context=tls_context(settings) if settings.url.tls else None,
        )
        client.pending_calls_threshold = IN_FLIGHT
        return client

    async def _send(self, client: _BrokerClient) -> None:
        """Publish the messages of the outbox until the daemon ends."""
        while not self._ending:
            self._wake.clear()
            if messages := self._outbox.take(IN_FLIGHT):
                await self._deliver(client, messages)
            else:
                await self._wake.wait()
        async with asyncio.timeout(STOP_S):
            while messages := self._outbox.take(IN_FLIGHT):
                await self._deliver(client, messages)

    async def _deliver(self, client: _BrokerClient, messages: Sequence[OutMessage]) -> None:
        """Publish messages in their order. Messages that fail go back into the outbox."""
        try:
            results = await asyncio.gather(
                *(
                    client.publish(m.key, m.body, qos=self.settings.qos, retain=m.retained)
                    for m in messages
                ),
                return_exceptions=True,
            )
        except asyncio.CancelledError:
            self._outbox.put_back(messages)
            raise
        failed = [pair for pair in zip(messages, results, strict=True) if pair[1] is not None]
        self.published += len(messages) - len(failed)
        if failed:
            self._outbox.put_back([message for message, _ in failed])
            error = failed[0][1]
            assert isinstance(error, BaseException)
            raise error

    async def _receive(self, client: _BrokerClient) -> None:
        """Clear the statuses of consumers that were removed while the daemon did not run, or was not connected."""
        async for message in client.messages:
            topic, body = str(message.topic), message.payload
            if not message.retain or topic in self._outbox.topics():
                continue
            if self._bodies.is_own(body):
                self._outbox.put(MessageKind.STATUS, topic, b"")

    async def _sweep(self, client: _BrokerClient) -> None:
        """Let the broker send the statuses that it has retained. If the broker refuses the subscription, the statuses
        of removed consumers stay at the broker."""
        await client.subscribe(self._topics.statuses)
        await asyncio.sleep(SWEEP_S)
        await client.unsubscribe(self._topics.statuses)


def tls_context(settings: MqttSettings) -> ssl.SSLContext:
    """Returns a context that verifies the broker's name and certificate."""
    tls = settings.tls
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each call in a daemon thread, so that a call that hangs, such as a connect, does not keep the process from
    ending."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="mqtt connect", daemon=True).start()
        return future


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error


def _explained(error: Exception) -> str:
    """Returns a text: what is wrong, and what to do."""
    text = str(error) or type(error).__name__
    if not isinstance(error, (aiomqtt.MqttError, OSError, TimeoutError)):
        text = f"{type(error).__name__}: {text}"
    remedy = next((remedy for part, remedy in _REMEDIES if part in text.lower()), _REMEDY)
    return f"{text}; {remedy}"


def _nothing() -> None:
    pass
