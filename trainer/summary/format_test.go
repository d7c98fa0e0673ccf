package summary

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// The known checksums are from RFC 3720, appendix B.4, and the common check
// value of "123456789".
func TestChecksumKnownAnswers(t *testing.T) {
	counting := make([]byte, 32)
	for i := range counting {
		counting[i] = byte(i)
	}
	backwards := slices.Clone(counting)
	slices.Reverse(backwards)
	for _, c := range []struct {
		data []byte
		want uint32
	}{
		{[]byte("123456789"), 0xe3069283},
		{make([]byte, 32), 0x8a9136aa},
		{bytes.Repeat([]byte{0xff}, 32), 0x62a8ab43},
		{counting, 0x46dd794e},
		{backwards, 0x113fdb5c},
	} {
		if got := crc32.Checksum(c.data, castagnoli); got != c.want {
			t.Errorf("%x: %08x, want %08x", c.data, got, c.want)
		}
	}
}

// Every event file of TensorFlow begins with the same twelve bytes: the length
// of the first event and the checksum of the length. Then follows the key of
// the time.
func TestFileBeginsLikeTensorFlowFiles(t *testing.T) {
	b := appendRecord(nil, versionEvent(time.Unix(1714564800, 250e6)))
	want := []byte{24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22, 0x09}
	if !bytes.HasPrefix(b, want) {
		t.Errorf("begins with % x, want % x", b[:len(want)], want)
	}
	events, err := decodeEvents(b)
	if err != nil || len(events) != 1 || events[0].version != "brain.Event:2" || events[0].time != 1714564800.25 {
		t.Errorf("%+v, %v", events, err)
	}
}

var sample = Scalars{
	Step: 7, Time: time.Unix(1714564800, 250e6), Loss: 0.25, LearningRate: 0.1, GradientNorm: 1.5, SamplesPerSecond: 8000,
	Compute: 10500 * time.Microsecond, Communication: 2 * time.Millisecond, Wait: 500 * time.Microsecond,
	Metrics: map[string]float64{"accuracy": 0.9, "a/b": 2},
}

func TestLine(t *testing.T) {
	const want = `{"step":7,"time":1714564800.250000,"loss":0.25,"learning_rate":0.1,"gradient_norm":1.5,` +
		`"samples_per_second":8000,"compute_ms":10.5,"communication_ms":2,"wait_ms":0.5,"metrics":{"a/b":2,"accuracy":0.9}}` + "\n"
	if got := string(sample.record().appendLine(nil)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	none := Scalars{GradientNorm: math.NaN()}.record()
	if got := string(none.appendLine(nil)); strings.Contains(got, "norm") || strings.Contains(got, "metrics") {
		t.Errorf("a norm that nobody knows, and no metrics: %s", got)
	}
}

func TestEvent(t *testing.T) {
	e, err := decodeEvent(sample.record().event())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"loss", "learning_rate", "gradient_norm", "samples_per_second", "compute_ms", "communication_ms",
		"wait_ms", "metrics/a/b", "metrics/accuracy"}
	if !slices.Equal(e.tags, want) || e.step != 7 || e.time != 1714564800.25 || e.version != "" {
		t.Errorf("got %+v, want the tags %q", e, want)
	}
	if e.values["loss"] != 0.25 || e.values["learning_rate"] != float32(0.1) || e.values["wait_ms"] != 0.5 || e.values["metrics/accuracy"] != float32(0.9) {
		t.Errorf("values %v", e.values)
	}
}

// NaN and infinities must be readable from both files, although JSON has no
// such numbers.
func TestNonFiniteValuesAreWritten(t *testing.T) {
	s := Scalars{Loss: math.NaN(), GradientNorm: math.Inf(1), LearningRate: math.Copysign(0, -1),
		Metrics: map[string]float64{"low": math.Inf(-1), "wide": 1e300, "": 5e-324, "\xff\"\n": 1}}
	line := s.record().appendLine(nil)
	if !json.Valid(line) {
		t.Fatalf("not JSON: %s", line)
	}
	lines, err := ReadLines(bytes.NewReader(line))
	if err != nil {
		t.Fatal(err)
	}
	e, err := decodeEvent(s.record().event())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"loss": math.NaN(), "gradient_norm": math.Inf(1), "metrics/low": math.Inf(-1),
		"metrics/wide": 1e300, "metrics/": 5e-324, "metrics/\ufffd\"\n": 1, "learning_rate": math.Copysign(0, -1)} {
		if got, ok := lines[0].Values[name]; !ok || math.Float64bits(got) != math.Float64bits(want) && !math.IsNaN(want) {
			t.Errorf("%q: %v in the line, want %v", name, got, want)
		}
		got, ok := e.values[name]
		if narrow := float32(want); !ok || math.Float32bits(got) != math.Float32bits(narrow) && !math.IsNaN(want) || math.IsNaN(want) && got == got {
			t.Errorf("%q: %v in the event, want %v", name, got, narrow)
		}
	}
}

func TestReadLines(t *testing.T) {
	for text, want := range map[string]string{
		"5\n": "line 1: ", "{\n": "line 1: ", "{}\n": "step: ", `{"step":-1,"time":1}` + "\n": "step: ",
		`{"step":1}` + "\n": "time : want Unix seconds", `{"step":1,"time":"NaN"}` + "\n": `time "NaN"`, `{"step":1,"time":1e300}` + "\n": "time 1e300",
		`{"step":1,"time":1}` + "\n\n":           "line 2: ",
		`{"step":1,"time":1,"loss":null}` + "\n": `"loss": null is not a number`, `{"step":1,"time":1,"loss":"Inf"}` + "\n": `"loss": "Inf" is not`,
		`{"step":1,"time":1,"metrics":3}` + "\n": "metrics: ", `{"step":1,"time":1,"metrics":{"a":[]}}` + "\n": `metric "a": [] is not`,
		`{"step":1,"time":1,"loss":1e999}` + "\n": `"loss": `,
		strings.Repeat(" ", maxLine+1):            "longer than",
	} {
		if _, err := ReadLines(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	lines, err := ReadLines(strings.NewReader(`{"step":1,"time":2.5}` + "\n" + `{"step":2,"ti`))
	if err != nil || len(lines) != 1 || lines[0].Step != 1 || !lines[0].Time.Equal(time.Unix(2, 500e6)) {
		t.Errorf("a cut end: %+v, %v", lines, err)
	}
}

func FuzzReadLines(f *testing.F) {
	f.Add(sample.record().appendLine(nil))
	f.Add([]byte(`{"step":1,"time":-1.5,"loss":"NaN","metrics":{"a":"-Inf"}}` + "\n"))
	f.Add([]byte("{}\n{\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := ReadLines(bytes.NewReader(text))
		if err != nil && lines != nil {
			t.Fatal("lines and an error")
		}
		if len(lines) > bytes.Count(text, []byte("\n")) {
			t.Fatalf("%d lines of %q", len(lines), text)
		}
	})
}

// The tests must read the same values from both files that the Writer was
// given.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(7), int64(1714564800), "accuracy", 0.5, 0.25)
	f.Add(uint64(0), int64(-1), "\xff\"\\", math.Inf(1), math.NaN())
	f.Add(uint64(math.MaxUint64), int64(1)<<33, "", math.Copysign(0, -1), 1e-320)
	f.Fuzz(func(t *testing.T, step uint64, at int64, name string, loss, metric float64) {
		s := Scalars{Step: step, Time: time.Unix(at%(1<<40), 0), Loss: loss, Metrics: map[string]float64{name: metric}}
		name = metricsPrefix + strings.ToValidUTF8(name, "\ufffd")
		lines, err := ReadLines(bytes.NewReader(s.record().appendLine(nil)))
		if err != nil || len(lines) != 1 || lines[0].Step != step || !lines[0].Time.Equal(s.Time) {
			t.Fatalf("line: %+v, %v", lines, err)
		}
		if got := lines[0].Values; !same(got["loss"], loss) || !same(got[name], metric) {
			t.Fatalf("line: %v", got)
		}
		events, err := decodeEvents(appendRecord(nil, s.record().event()))
		if err != nil || len(events) != 1 || uint64(events[0].step) != step || events[0].time != float64(s.Time.Unix()) {
			t.Fatalf("event: %+v, %v", events, err)
		}
		if got := events[0].values; !same(float64(got["loss"]), float64(float32(loss))) || !same(float64(got[name]), float64(float32(metric))) {
			t.Fatalf("event: %v", got)
		}
	})
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// The checksums must cover every bit: the decoder must report an error if any
// bit is flipped.
func TestChecksumsCoverEverything(t *testing.T) {
	whole := appendRecord(nil, sample.record().event())
	for i := range whole {
		b := slices.Clone(whole)
		b[i] ^= 1 << (i % 8)
		if _, err := decodeEvents(b); err == nil {
			t.Errorf("byte %d of %d can change", i, len(b))
		}
	}
	if n := binary.LittleEndian.Uint64(whole); int(n) != len(whole)-16 {
		t.Errorf("%d bytes of data in a record of %d", n, len(whole))
	}
}
