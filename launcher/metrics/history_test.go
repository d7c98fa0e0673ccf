package metrics

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.UnixMilli(1_700_000_000_123)

// sampleOf returns a sample from alternating names and numbers.
func sampleOf(pairs ...any) (s Sample) {
	for i := 0; i < len(pairs); i += 2 {
		s.set(pairs[i].(string), pairs[i+1].(float64))
	}
	return s
}

func TestHistoryKeepsTheNewest(t *testing.T) {
	var h History
	if h.Newest() != nil || h.Points("loss") != nil {
		t.Error("an empty history has values")
	}
	h.Add(start, sampleOf("loss", 3.0))
	h.Add(start.Add(time.Second), sampleOf("loss", 2.0, Step, 7.0, Steps, 100.0))
	h.Add(start.Add(2*time.Second), sampleOf("acc", math.NaN(), "a b", 1.0, Epoch, 0.5))
	text, err := json.Marshal(h.Newest())
	if want := `{"acc":"NaN","epoch":0.5,"loss":2,"step":7,"steps":100}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	var back map[string]Number
	if err := json.Unmarshal(text, &back); err != nil || back["loss"] != 2 || !math.IsNaN(float64(back["acc"])) {
		t.Errorf("%v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`["+Inf","-Inf","x"]`), &[]Number{}); err == nil || !strings.Contains(err.Error(), `metric "x"`) {
		t.Errorf("a word as a number: %v", err)
	}
	want := []Point{{-1, start, 3, 3, 3}, {7, start.Add(time.Second), 2, 2, 2}}
	if got := h.Points("loss"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The number of points is bounded for any number of values. The points are
// evenly spaced, and neither a spike nor a NaN is lost.
func TestHistoryMergesPoints(t *testing.T) {
	const n, spike, broken = 10*maxPoints + 5, 4321, 12345
	var h History
	for i := range n {
		loss := 1.0
		switch i {
		case spike:
			loss = 1e6
		case broken:
			loss = math.NaN()
		}
		h.Add(start.Add(time.Duration(i)*time.Second), sampleOf(Step, float64(i), "loss", loss))
		if len(h.Points("loss")) > maxPoints {
			t.Fatalf("%d points after %d values", len(h.Points("loss")), i+1)
		}
	}
	points := h.Points("loss")
	if len(points) < maxPoints/2 {
		t.Errorf("%d points of %d values", len(points), n)
	}
	spikes, breaks := 0, 0
	for i, p := range points {
		if want := int64(min(16*i+15, n-1)); p.Step != want || !p.Time.Equal(start.Add(time.Duration(want)*time.Second)) {
			t.Fatalf("point %d is at step %d, %v, want step %d", i, p.Step, p.Time, want)
		}
		if p.Max == 1e6 && p.Min == 1 && p.Last == 1 {
			spikes++
		}
		if math.IsNaN(float64(p.Max)) && p.Last == 1 {
			breaks++
		}
	}
	if spikes != 1 || breaks != 1 {
		t.Errorf("%d points have the spike, %d the NaN", spikes, breaks)
	}
}

// After a restart the steps decrease, but the history has the points of both
// runs in order of time.
func TestHistoryAcceptsDecreasingSteps(t *testing.T) {
	var h History
	for i, step := range []float64{10, 20, 30, 20, 30} {
		h.Add(start.Add(time.Duration(i)*time.Second), sampleOf(Step, step, "loss", step))
		if i != 2 {
			continue
		}
		b, _ := h.AppendBinary(nil)
		h = History{}
		if err := h.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if h.Newest()[Step] != 30 {
			t.Errorf("newest values %v", h.Newest())
		}
		if h.Restart(); len(h.Newest()) != 0 {
			t.Errorf("newest values after a restart: %v", h.Newest())
		}
	}
	var steps []int64
	for _, p := range h.Points("loss") {
		steps = append(steps, p.Step)
	}
	if !slices.Equal(steps, []int64{10, 20, 30, 20, 30}) || h.Newest()[Step] != 30 {
		t.Errorf("steps %v, newest %v", steps, h.Newest())
	}
}

// full returns the largest history.
func full() *History {
	var h History
	for i := range 3 * maxPoints / 2 {
		var s Sample
		for name := range maxNames {
			s = append(s, Value{fmt.Sprintf("%0*d", maxName, name), Number(math.Sqrt(float64(i * name)))})
			s[name].Name = "n" + s[name].Name[1:]
		}
		step := float64(i % 2 * maxCount)
		h.Add(start.AddDate(i%2*1000, 0, 0), append(s, Value{Step, Number(step)}, Value{"one too many", 1}, Value{"more", 1}))
	}
	return &h
}

func TestHistoryIsBounded(t *testing.T) {
	h := full()
	if len(h.series) != maxNames || len(h.Newest()) != maxNames+1 {
		t.Errorf("%d series, %d newest values", len(h.series), len(h.Newest()))
	}
	b, err := h.AppendBinary(nil)
	if err != nil || len(b) > MaxEncoded {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	var back History
	if err := back.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(*h, back) {
		t.Errorf("it does not come back: %v", err)
	}
	// the encoding of a typical history is much smaller than the limit
	var usual History
	for i := range maxPoints {
		usual.Add(start.Add(time.Duration(i)*time.Second), sampleOf(Step, float64(i), "loss", 0.1*float64(i)))
	}
	if b, _ := usual.AppendBinary(nil); len(b) > 13*maxPoints {
		t.Errorf("%d bytes for %d points", len(b), maxPoints)
	}
}

// resummed appends the correct checksum to an encoding.
func resummed(content ...byte) []byte {
	return binary.LittleEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
}

func TestDecodeRefusesADamagedHistory(t *testing.T) {
	var good History
	good.Add(start, sampleOf("loss", 1.0, Step, 3.0))
	b, _ := good.AppendBinary(nil)
	head := []byte(encodingHead)
	for _, c := range []struct {
		data []byte
		want string
	}{
		{nil, "it is not a history, or empty"}, {b[:8], "it is not a history, or empty"}, {[]byte("words that are no history"), "it is not a history, or empty"},
		{append([]byte("plxm\x02"), b[5:]...), "it has version 2, this plx reads 1"},
		{append(slices.Clone(b[:len(b)-1]), b[len(b)-1]^1), "its checksum is wrong"}, {b[:len(b)-1], "its checksum is wrong"},
		{make([]byte, MaxEncoded+1), "8388609 bytes, at most 8388608 are allowed"},
		{resummed(head...), "malformed"},
		{resummed(append(b[:len(b)-4:len(b)-4], 0)...), "malformed"},
		{resummed(append(head[:5:5], 69)...), "malformed"},                                                     // too many newest values
		{resummed(append(head[:5:5], 0, 65)...), "malformed"},                                                  // too many series
		{resummed(append(head[:5:5], 1, 1, '9', 0, 0, 0, 0, 0, 0, 0, 0, 0)...), "malformed"},                   // a bad name
		{resummed(append(head[:5:5], 0, 1, 1, 'a', 1, 1, 0)...), "malformed"},                                  // no points
		{resummed(append(head[:5:5], 0, 1, 1, 'a', 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)...), "malformed"}, // filled more than full
		{resummed(append(head[:5:5], 0, 1, 1, 'a', 1, 1, 0xff, 0x0f)...), "malformed"},                         // the encoding ends before its last points
		{resummed(append(head[:5:5], 0, 1, 1, 'a', 1, 1, 0x81, 0x10)...), "malformed"},                         // 2049 points
	} {
		h := good
		err := h.UnmarshalBinary(c.data)
		if err == nil || !strings.HasPrefix(err.Error(), "history of metrics: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("% x: %v, want %s", c.data[:min(len(c.data), 30)], err, c.want)
		}
		if h.Newest()["loss"] != 1 {
			t.Errorf("% x: the history is lost", c.data[:min(len(c.data), 30)])
		}
	}
}

// A decoded history encodes to the same bytes, and accepts further values.
func FuzzHistory(f *testing.F) {
	var h History
	h.Add(start, sampleOf("loss", 1.0, Step, 3.0))
	h.Add(start, sampleOf("loss", math.NaN(), "acc", math.Inf(1)))
	h.series["loss"].halve()
	b, _ := h.AppendBinary(nil)
	f.Add(b[len(encodingHead) : len(b)-crc32.Size])
	f.Add([]byte{0, 1, 1, 'a', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, content []byte) {
		encoded := resummed(append([]byte(encodingHead), content...)...)
		var h History
		if h.UnmarshalBinary(encoded) != nil {
			return
		}
		again, err := h.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var back History
		if err := back.UnmarshalBinary(again); err != nil {
			t.Fatal(err)
		}
		if third, _ := back.AppendBinary(nil); !bytes.Equal(again, third) {
			t.Fatalf("% x became % x", again, third)
		}
		for range 3 {
			h.Add(start, sampleOf("a", 1.0))
		}
	})
}

// Within keeps the smallest, greatest and last value of each metric, and how
// many values the points summarize.
func TestWithinKeepsExtremes(t *testing.T) {
	var h History
	for i := range 3001 {
		h.Add(time.UnixMilli(int64(i)), Sample{{Name: Step, Number: Number(i)}, {Name: "loss", Number: Number((i * 7919) % 3001)}, {Name: "lr", Number: 1}})
	}
	full, _ := h.AppendBinary(nil)
	for _, limit := range []int{len(full), len(full) / 2, 5000, 500, 300, 1} {
		b := h.Within(limit)
		if len(b) > limit && limit > 1 {
			t.Errorf("%d bytes, at most %d", len(b), limit)
		}
		var small History
		if err := small.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		points := small.Points("loss")
		least, greatest := points[0].Min, points[0].Max
		for _, p := range points {
			least, greatest = min(least, p.Min), max(greatest, p.Max)
		}
		if last := points[len(points)-1]; least != 0 || greatest != 3000 || last.Last != Number(3000*7919%3001) || last.Step != 3000 {
			t.Errorf("limit %d: least %v, greatest %v, last %+v", limit, least, greatest, last)
		}
		s := small.series["loss"]
		if n := int64(len(points)-1)*s.stride + s.filled; n != 3001 {
			t.Errorf("limit %d: the points stand for %d values", limit, n)
		}
	}
	if again, _ := h.AppendBinary(nil); !bytes.Equal(again, full) {
		t.Error("Within has changed the history")
	}
}
