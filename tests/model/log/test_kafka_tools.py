"""Our files read by Kafka's own tools, and Kafka's files read by us. `make test-kafka` runs it."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

import wavetank as wt
from wavetank.model.log.batch import Batch
from wavetank.model.log.record_batch import decode, encode
from wavetank.model.log.segment import SegmentScan, build_indexes, file_name, scan
from wavetank.model.serializers import make_serializer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

KAFKA = "4.3.1"
SLF4J = "1.7.36"
ORIGIN_US = 1_700_000_000_000_000
BYTES = make_serializer("bytes")

POM = f"""
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>wavetank</groupId>
  <artifactId>kafka-tools</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{KAFKA}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-nop</artifactId>
      <version>{SLF4J}</version>
    </dependency>
  </dependencies>
</project>
"""

WRITER = """
import java.io.File;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

/** Writes a segment: for each batch an offset, and as many records as its index plus one. */
public class Writer {
    public static void main(String[] arguments) throws Exception {
        Compression compression =
            arguments[1].equals("gzip") ? Compression.gzip().build() : Compression.NONE;
        try (FileRecords file = FileRecords.open(new File(arguments[0]))) {
            long offset = 100;
            for (int batch = 0; batch < 70; batch++) {
                SimpleRecord[] records = new SimpleRecord[batch + 1];
                for (int i = 0; i <= batch; i++) {
                    byte[] key = i % 3 == 0 ? null : bytes("key-" + i);
                    byte[] value = i % 5 == 4 ? null : bytes("v".repeat(i * batch));
                    Header[] headers = i % 4 == 0
                        ? new Header[] {new RecordHeader("name-" + i, bytes("é")),
                                        new RecordHeader("none", (byte[]) null)}
                        : new Header[0];
                    records[i] = new SimpleRecord(1700000000000L + 1000 * batch - 7 * i,
                                                  key, value, headers);
                }
                file.append(MemoryRecords.withIdempotentRecords(
                    offset, compression, 5L, (short) 2, 10 * batch, 4, records));
                offset += batch + 1;
            }
            file.flush();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
"""


def run(*words: object, cwd: Path) -> str:
    """Run a program and return what it prints, errors included: the tool succeeds in any case."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@attrs.frozen
class Tools:
    """Kafka's classes."""

    classpath: str
    folder: Path

    def dump(self, *arguments: object) -> str:
        """Run Kafka's DumpLogSegments."""
        main = "org.apache.kafka.tools.DumpLogSegments"
        return run("java", "-cp", self.classpath, main, *arguments, cwd=self.folder)

    def write(self, path: Path, compression: str) -> None:
        """Write a segment with Kafka's classes."""
        (self.folder / "Writer.java").write_text(WRITER, encoding="utf-8")
        options = ("-encoding", "UTF-8", "-cp", self.classpath, "-d", self.folder)
        run("javac", *options, "Writer.java", cwd=self.folder)
        classpath = f"{self.folder}:{self.classpath}"
        run("java", "-cp", classpath, "Writer", path, compression, cwd=self.folder)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """Kafka's classes, as Maven resolves them."""
    for program in ("mvn", "java", "javac"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on the PATH: Maven and a JDK get and run Kafka's tools")
    folder = tmp_path_factory.mktemp("kafka-tools")
    (folder / "pom.xml").write_text(POM)
    output = folder / "classpath.txt"
    goal = ("dependency:build-classpath", f"-Dmdep.outputFile={output}")
    run("mvn", "--batch-mode", "--quiet", *goal, cwd=folder)
    return Tools(output.read_text().strip(), folder)


# Our files, read by Kafka


@attrs.frozen
class Expected:
    """A record as Kafka should print it."""

    offset: int
    timestamp_ms: int
    sequence: int
    headers: tuple[str, ...]
    key: str | None
    value: str | None


def our_batches() -> list[tuple[Batch, int]]:
    """Batches of several producers, with their ids: encoded in rows, in turn, and one by one."""
    shop, till = 1, 2
    batches = [
        (Batch("shop", 0, 300, values=b"same value", timestamps_us=range(0, 300_000_000, 10**6),
               sizes=10), shop),
        (Batch("till", 0, 3, keys=(b"a", b"b", b"c"), values=(b"1", None, b""),
               headers=[[("trace", b"x"), ("trace", "y")], [], [("n", None)]],
               timestamps_us=(9_000_000, 5_000_000, 400_000_000), sizes=1), till),
        (Batch("shop", 300, 100, keys=tuple(b"k%04d" % i for i in range(100)),
               values=tuple(b"v" * i for i in range(100)), timestamps_us=400_500_000, sizes=1),
         shop),
        (Batch("till", 3, 1, keys=("é",), values=(None,), timestamps_us=401_000_000, sizes=1),
         till),
        *((Batch("shop", 400 + 40 * n, 40, values=(b"x" * 100,) * 40,
                 timestamps_us=402_000_000 + n * 10**6, sizes=100), shop) for n in range(20)),
    ]  # fmt: skip
    stamped = []
    offset = 50
    for batch, producer_id in batches:
        stamped.append((batch.stamped(offset, 0, 4, 3), producer_id))
        offset += batch.count
    return stamped


def expected_records() -> list[Expected]:
    def text(data: bytes | str | None) -> str | None:
        return data.decode() if isinstance(data, bytes) else data

    return [
        Expected(
            record.offset,
            (ORIGIN_US + record.timestamp_us) // 1000,
            record.sequence,
            tuple(name for name, _ in record.headers),
            text(record.key),
            text(record.value),
        )
        for batch, _ in our_batches()
        for record in batch.records("orders", 0)
    ]


@attrs.frozen
class Partition:
    """The files of a segment that we wrote."""

    log: Path
    index: Path
    time_index: Path


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    folder = tmp_path_factory.mktemp("data") / "orders-0"
    folder.mkdir()
    files = Partition(*(folder / file_name(50, suffix) for suffix in
                        (".log", ".index", ".timeindex")))  # fmt: skip
    frames = [
        encode(batch, producer_id=id, origin_us=ORIGIN_US, dumps=BYTES.dumps)
        for batch, id in our_batches()
    ]
    files.log.write_bytes(b"".join(frames))
    index, time_index = build_indexes(scan_file(files.log, 50), 50, 4096)
    assert len(index) > 3 * 8
    assert len(time_index) > 3 * 12
    files.index.write_bytes(index)
    files.time_index.write_bytes(time_index)
    return files


def scan_file(path: Path, base_offset: int) -> SegmentScan:
    data = path.read_bytes()
    return scan(
        lambda at, size: data[at : at + size], len(data), base_offset=base_offset, checksums=True
    )


RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) CreateTime: (?P<time>\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<names>.*?)\]"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?$"
)


def printed_records(output: str) -> list[Expected]:
    """The records in the output of DumpLogSegments."""
    found = []
    for line in output.splitlines():
        match = RECORD.match(line)
        if match is None:
            assert not line.startswith("|"), line
            continue
        key = None if match["key_size"] == "-1" else match["key"] or ""
        value = None if match["value_size"] == "-1" else match["value"] or ""
        names = tuple(match["names"].split(",")) if match["names"] else ()
        numbers = (int(match[name]) for name in ("offset", "time", "sequence"))
        found.append(Expected(*numbers, names, key, value))
    return found


def test_kafka_reads_the_batches_and_records_that_we_write(tools: Tools, ours: Partition) -> None:
    output = tools.dump("--deep-iteration", "--print-data-log", "--files", ours.log)
    assert printed_records(output) == expected_records()
    batches = [line for line in output.splitlines() if line.startswith("baseOffset:")]
    assert len(batches) == len(our_batches())
    assert all(" isvalid: true" in line and " magic: 2 " in line for line in batches)
    for line, (batch, producer_id) in zip(batches, our_batches(), strict=True):
        last = batch.base_offset + batch.count - 1
        assert line.startswith(f"baseOffset: {batch.base_offset} lastOffset: {last} ")
        assert f" producerId: {producer_id} producerEpoch: 3 partitionLeaderEpoch: 4 " in line


@pytest.mark.parametrize("check", ["--verify-index-only", "--index-sanity-check"])
def test_kafka_accepts_the_indexes_that_we_write(tools: Tools, ours: Partition, check: str) -> None:
    for path in (ours.index, ours.time_index):
        output = tools.dump(check, "--files", path)
        complaints = ("Mismatches", "Found", "Invalid", "non-consecutive", "out of order", "rror")
        assert not [word for word in complaints if word in output], output
        assert check == "--verify-index-only" or "passed sanity check" in output


@pytest.mark.parametrize(
    ("name", "byte", "complaint"),
    [("index", 3, "Mismatches in"), ("time_index", 7, "Found timestamp mismatch in")],
)
def test_kafka_finds_the_mistake_in_a_wrong_index(
    tools: Tools, ours: Partition, tmp_path: Path, name: str, byte: int, complaint: str
) -> None:
    """Otherwise the test above would prove nothing."""
    for path in (ours.log, ours.index, ours.time_index):
        shutil.copy(path, tmp_path)
    path = tmp_path / getattr(ours, name).name
    wrong = bytearray(path.read_bytes())
    wrong[byte] ^= 1
    path.write_bytes(wrong)
    assert complaint in tools.dump("--verify-index-only", "--files", path)


# Kafka's files, read by us


def kafka_records() -> Sequence[tuple[int, int, bytes | None, bytes | None, object]]:
    """What the Java program writes."""
    records = []
    offset = 100
    for batch in range(70):
        for i in range(batch + 1):
            key = None if i % 3 == 0 else f"key-{i}".encode()
            value = None if i % 5 == 4 else b"v" * (i * batch)
            headers = ((f"name-{i}", "é".encode()), ("none", None)) if i % 4 == 0 else ()
            timestamp_ms = 1_700_000_000_000 + 1000 * batch - 7 * i
            records.append((offset, timestamp_ms, key, value, headers))
            offset += 1
    return records


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_we_read_the_segment_that_kafka_writes(
    tools: Tools, tmp_path: Path, compression: str
) -> None:
    path = tmp_path / file_name(100, ".log")
    tools.write(path, compression)
    scanned = scan_file(path, 100)
    assert (scanned.damage, len(scanned)) == (None, 70)
    assert scanned.header(0).compression == compression
    data = path.read_bytes()
    found = []
    for number, position in enumerate(scanned.positions.tolist()):
        frame = data[position : position + scanned.header(number).size]
        batch = decode(frame, names={5: ("java", "java-1")}, origin_us=ORIGIN_US, loads=BYTES.loads)
        assert (batch.producer, batch.instance) == ("java", "java-1")
        assert (batch.sequence, batch.epoch) == (10 * number, 4)
        found += [
            (each.offset, (each.timestamp_us + ORIGIN_US) // 1000, each.key, each.value,
             each.headers)
            for each in batch.records("orders", 0)
        ]  # fmt: skip
    assert found == kafka_records()


# The files of a live cluster


def test_kafka_reads_the_files_of_a_live_cluster(tools: Tools, tmp_path: Path) -> None:
    options = {"log_segment_bytes": 20_000, "log_index_interval_bytes": 1_000}
    with wt.Cluster.live(data_dir=tmp_path, **options) as cluster:  # type: ignore[arg-type]
        cluster.create_topic("orders", type=str)
        shop = cluster.producer("shop", "manual", linger_ms=0, batch_size=1_000)
        futures = [
            shop.send("orders", f"value-{n}" * 5, key=f"key-{n % 9}", partition=0)
            for n in range(1_000)
        ]
        stored = {future.get(timeout=60).offset: n for n, future in enumerate(futures)}
    folder = tmp_path / "broker-0" / "orders-0"
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    files = [*logs, *sorted(folder.glob("*.index")), *sorted(folder.glob("*.timeindex"))]
    printed = tools.dump(
        "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files))
    )
    found = re.findall(r"\| offset: (\d+) .*key: (key-\d+) payload: (value-\S+)", printed)
    assert [(int(offset), key, value) for offset, key, value in found] == [
        (offset, f"key-{n % 9}", f"value-{n}" * 5) for offset, n in sorted(stored.items())
    ]
    assert "isvalid: false" not in printed
    assert "Mismatches" not in printed
    assert "out of order" not in printed
