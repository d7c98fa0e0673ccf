package summary

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// readAll reads all events of a file, with as many calls of ReadEvents as
// necessary.
func readAll(b []byte, offset int64) (all []Event, end int64, err error) {
	for {
		next, err := ReadEvents(bytes.NewReader(b), offset, func(e Event) { all = append(all, e) })
		if err != nil || next == offset {
			return all, next, err
		}
		offset = next
	}
}

// ReadEvents must return the scalars that a Writer has written, and skip the
// histograms.
func TestReadEventsOfAWriter(t *testing.T) {
	s := sample
	s.Histograms = []Histogram{{Name: "weights", Number: 1, Bounds: []float64{1}, Counts: []float64{1}}}
	b := appendRecord(nil, versionEvent(sample.Time))
	b = appendRecord(b, s.record().event())
	all, end, err := readAll(b, 0)
	if err != nil || end != int64(len(b)) {
		t.Fatalf("end %d of %d, %v", end, len(b), err)
	}
	want := []string{"loss", "learning_rate", "gradient_norm", "samples_per_second", "compute_ms", "communication_ms", "wait_ms", "metrics/a/b", "metrics/accuracy"}
	var tags []string
	for _, e := range all {
		if tags = append(tags, e.Tag); e.Step != 7 || !e.Time.Equal(sample.Time) {
			t.Errorf("%+v", e)
		}
	}
	if !slices.Equal(tags, want) || all[0].Value != 0.25 || all[8].Value != float64(float32(0.9)) {
		t.Errorf("%+v", all)
	}
}

// tensorValue encodes a scalar as TensorFlow 2 does: a Value with a tensor of
// shape dims.
func tensorValue(tag, plugin string, dtype byte, dims []byte, content ...byte) []byte {
	var shape []byte
	for _, d := range dims {
		shape = appendBytes(shape, 2<<3|2, []byte{1 << 3, d})
	}
	tensor := appendBytes([]byte{1 << 3, dtype}, 2<<3|2, shape)
	v := appendBytes(nil, valueTag, []byte(tag))
	v = appendBytes(v, 8<<3|2, append(tensor, content...))
	if plugin != "" {
		v = appendBytes(v, 9<<3|2, appendBytes(nil, 1<<3|2, appendBytes(nil, 1<<3|2, []byte(plugin))))
	}
	return v
}

func TestReadEventsReadsScalarTensors(t *testing.T) {
	four := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.5))
	eight := binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.1))
	packed := appendBytes(nil, 5<<3|2, four)
	content := appendBytes(nil, 4<<3|2, four)
	single := append([]byte{5<<3 | 5}, four...)
	double := append([]byte{6<<3 | 1}, eight...)
	var values []byte
	for _, v := range [][]byte{
		tensorValue("packed", "scalars", 1, nil, packed...), tensorValue("content", "", 1, nil, content...), tensorValue("single", "", 1, []byte{1, 1}, single...),
		tensorValue("double", "", 2, nil, double...), tensorValue("nan", "", 1, nil, append([]byte{5<<3 | 5}, 0, 0, 0xc0, 0x7f)...),
		// ReadEvents must ignore the following values, which are no scalars.
		tensorValue("text", "text", 7, nil, appendBytes(nil, 8<<3|2, []byte("word"))...), tensorValue("filled", "", 1, []byte{100}, single...),
		tensorValue("other", "mine", 1, nil, packed...), tensorValue("two", "", 1, nil, append(packed, packed...)...), tensorValue("none", "", 1, nil),
		tensorValue("no", "", 1, []byte{0}, single...), tensorValue("type", "", 3, nil, packed...), appendBytes(nil, valueTag, []byte("empty")),
	} {
		values = appendBytes(values, summaryValue, v)
	}
	all, _, err := readAll(appendRecord(nil, appendBytes([]byte{eventStep, 3}, eventSummary, values)), 0)
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, e := range all {
		if tags = append(tags, e.Tag); e.Step != 3 || !e.Time.Equal(time.Time{}) && !e.Time.Equal(time.Unix(0, 0)) {
			t.Errorf("%+v", e)
		}
	}
	if want := []string{"packed", "content", "single", "double", "nan"}; !slices.Equal(tags, want) {
		t.Fatalf("got %q, want %q", tags, want)
	}
	if all[0].Value != 0.5 || all[1].Value != 0.5 || all[2].Value != 0.5 || all[3].Value != 0.1 || !math.IsNaN(all[4].Value) {
		t.Errorf("%+v", all)
	}
}

// While a file grows, ReadEvents must continue at the offset that the last
// call returned, even if that call ended inside a record.
func TestReadEventsOfAGrowingFile(t *testing.T) {
	whole := appendRecord(nil, versionEvent(sample.Time))
	first := len(whole)
	whole = appendRecord(whole, sample.record().event())
	for cut := range whole {
		all, end, err := readAll(whole[:cut], 0)
		if want := first * min(1, cut/first); err != nil || int(end) != want || all != nil {
			t.Fatalf("%d bytes: end %d, want %d, %v", cut, end, want, err)
		}
	}
	if all, end, err := readAll(whole, int64(first)); err != nil || int(end) != len(whole) || len(all) != 9 {
		t.Errorf("from %d: %d scalars, end %d, %v", first, len(all), end, err)
	}
	if _, end, err := readAll(whole, int64(len(whole))+5); err != nil || int(end) != len(whole)+5 {
		t.Errorf("behind the end: %d, %v", end, err)
	}
}

// ReadEvents must skip a record that is larger than one call reads, as soon as
// the file contains the whole record.
func TestReadEventsSkipsLargeRecords(t *testing.T) {
	large := appendRecord(nil, appendBytes(nil, 4<<3|2, make([]byte, maxRead)))
	scalars := appendRecord(nil, sample.record().event())
	file := slices.Concat(scalars, large, scalars)
	if all, end, err := readAll(file, 0); err != nil || int(end) != len(file) || len(all) != 18 {
		t.Errorf("%d scalars, end %d of %d, %v", len(all), end, len(file), err)
	}
	if all, end, err := readAll(file[:len(file)-len(scalars)-1], 0); err != nil || int(end) != len(scalars) || len(all) != 9 {
		t.Errorf("in part: %d scalars, end %d, %v", len(all), end, err)
	}
}

func TestDamagedEventsAreErrors(t *testing.T) {
	good := appendRecord(nil, sample.record().event())
	record := func(data ...byte) []byte { return appendRecord(nil, data) }
	length := binary.LittleEndian.AppendUint64(nil, 1<<40)
	for _, c := range []struct {
		data []byte
		want string
	}{
		{slices.Concat([]byte{good[0] ^ 1}, good[1:]), "the checksum of its length is wrong"},
		{slices.Concat(good[:len(good)-1], []byte{good[len(good)-1] ^ 1}), "its checksum is wrong"},
		{make([]byte, 64), "the checksum of its length is wrong"},
		{binary.LittleEndian.AppendUint32(length, masked(length)), "it has 1099511627776 bytes, at most"},
		{record(0x80), "a key is cut"}, {record(1<<3|1, 0), "a number is cut"}, {record(2<<3, 0x80), "a number is cut"}, {record(2<<3|5, 0), "a number is cut"},
		{record(5<<3|2, 9, 0), "a field of 9 bytes is cut"}, {record(5<<3|2, 2, 1<<3|2, 9), "a field of 9 bytes is cut"}, {record(3), "wire type 3 is none"},
		{record(5<<3|2, 4, 1<<3|2, 2, 8<<3|2, 9), "a field of 9 bytes is cut"},
	} {
		all, end, err := readAll(slices.Concat(good, c.data, good), 0)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(all) != 9 || int(end) != len(good) {
			t.Errorf("% x: %d scalars, end %d, %v, want %s", c.data[:min(20, len(c.data))], len(all), end, err, c.want)
		}
	}
}

// ReadEvents must find the same scalars as the independent decoder of the
// tests.
func FuzzReadEvents(f *testing.F) {
	f.Add(sample.record().event(), int64(0))
	f.Add(tensorValue("a", "scalars", 1, []byte{1}, 5<<3|5, 0, 0, 0, 0), int64(3))
	f.Add([]byte{}, int64(1<<62))
	f.Fuzz(func(t *testing.T, data []byte, offset int64) {
		if _, end, _ := readAll(data, offset&math.MaxInt64); end < offset&math.MaxInt64 {
			t.Fatalf("went back to %d", end)
		}
		file := slices.Concat(appendRecord(nil, data), appendRecord(nil, appendBytes(nil, eventSummary, appendBytes(nil, summaryValue, data))))
		all, _, err := readAll(file, 0)
		events, failed := decodeEvents(file)
		if failed != nil || slices.ContainsFunc(events, func(d decodedEvent) bool { return len(d.tags) != len(d.values) }) {
			return // the file is damaged, or a tag occurs twice
		}
		if err != nil {
			t.Fatalf("%v, but the other decoder reads it", err)
		}
		for _, e := range all {
			if !slices.ContainsFunc(events, func(d decodedEvent) bool {
				v, ok := d.values[e.Tag]
				return ok && d.step == e.Step && same(float64(v), e.Value)
			}) {
				t.Fatalf("%+v is not in %+v", e, events)
			}
		}
	})
}
