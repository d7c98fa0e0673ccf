//go:build linux

package sampler

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

const statText = `cpu  100 20 30 4000 50 6 7 8 90 1
cpu0 50 10 15 2000 25 3 4 4 45 1
cpu1 50 10 15 2000 25 3 3 4 45 0
intr 1234 5 6
ctxt 99
`

func TestParseStat(t *testing.T) {
	busy, idle, cpus, err := parseStat([]byte(statText))
	if busy != 163 || idle != 4058 || cpus != 2 || err != nil {
		t.Errorf("busy %d, idle %d, %d processors, %v", busy, idle, cpus, err)
	}
	for _, wrong := range []string{"", "intr 1\n", "cpu  1 2 3 4\n", "cpu  1 x 3 4\ncpu0 1\n", "cpu\ncpu0 1\n", "cpu  99999999999999999999 1 1 1\ncpu0 1\n"} {
		if _, _, _, err := parseStat([]byte(wrong)); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}

func TestParseMemory(t *testing.T) {
	total, used, err := parseMemory([]byte("MemTotal:        8000 kB\nMemFree:    10 kB\nMemAvailable:   3000 kB\nHugePages_Total:       0\n"))
	if total != 8000<<10 || used != 5000<<10 || err != nil {
		t.Errorf("total %d, used %d, %v", total, used, err)
	}
	if _, used, err = parseMemory([]byte("MemTotal: 10 kB\nMemAvailable: 11 kB\n")); used != 0 || err != nil {
		t.Errorf("more is available than there is: used %d, %v", used, err)
	}
	for _, wrong := range []string{"", "MemTotal: 1 kB\n", "MemTotal: 1\nMemAvailable: 1 kB\n", "MemTotal: -1 kB\nMemAvailable: 1 kB\n", "MemTotal: 18014398509481985 kB\nMemAvailable: 1 kB\n"} {
		if _, _, err := parseMemory([]byte(wrong)); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}

func TestParseNetwork(t *testing.T) {
	got := parseNetwork([]byte(`Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0
  eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0
ib0:18446744073709551615 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0
 short: 1 2 3
  text: a 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0
`))
	if want := map[string]traffic{"eth0": {1000, 2000}, "ib0": {math.MaxUint64, 3}}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestParseLoad(t *testing.T) {
	if load, err := parseLoad([]byte("1.25 0.50 0.10 2/345 6789\n")); load != 1.25 || err != nil {
		t.Errorf("%v, %v", load, err)
	}
	for _, wrong := range []string{"", "x", "-1 0 0", "NaN 0 0", "Inf 0 0"} {
		if _, err := parseLoad([]byte(wrong)); err == nil {
			t.Errorf("%q is read", wrong)
		}
	}
}

// The counters were read 2 seconds apart on a host with 4 CPUs.
func TestUseBetweenTwoReadings(t *testing.T) {
	net := func(name string, received, sent uint64) counters {
		return counters{network: map[string]traffic{name: {received, sent}}}
	}
	for name, c := range map[string]struct {
		before, after counters
		want          protocol.Sample
	}{
		"nothing":               {counters{}, counters{}, protocol.Sample{}},
		"processors":            {counters{busy: 100, idle: 1000}, counters{busy: 300, idle: 1600}, protocol.Sample{CPU: 1}},
		"less idle than before": {counters{busy: 100, idle: 1000}, counters{busy: 900, idle: 999}, protocol.Sample{CPU: 4}},
		"counters are reset":    {counters{busy: 100, idle: 1000}, counters{busy: 1, idle: 2}, protocol.Sample{}},
		"memory":                {counters{memoryUsed: 7}, counters{memoryUsed: 5}, protocol.Sample{Memory: 5}},
		"network":               {net("a", 1000, 5000), net("a", 3000, 5010), protocol.Sample{Received: 1000, Sent: 5}},
		"a counter wraps":       {net("a", math.MaxUint64, 10), net("a", 3, 20), protocol.Sample{Sent: 5}},
		"an interface appears":  {counters{}, net("a", 1<<40, 1<<40), protocol.Sample{}},
		"an interface vanishes": {net("a", 1, 1), counters{}, protocol.Sample{}},
		"another interface":     {net("a", 1, 1), net("b", 1<<40, 1<<40), protocol.Sample{}},
		"impossible":            {net("a", 0, 0), net("a", math.MaxUint64, 0), protocol.Sample{Received: 1 << 62}},
	} {
		c.after.cpus = 4
		passed := 2 * time.Second
		if name == "impossible" {
			passed = time.Second
		}
		if got := c.before.until(c.after, passed); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Samples have valid values for any content of the files in /proc.
func FuzzCounters(f *testing.F) {
	f.Add([]byte(statText), []byte("MemTotal: 8000 kB\nMemAvailable: 3000 kB\n"), []byte(" eth0: 1000 1 0 0 0 0 0 0 2000 1\n"), []byte("0.50 0.1 0.1 1/2 3"))
	f.Fuzz(func(t *testing.T, stat, memory, network, load []byte) {
		var c counters
		var err error
		if c.busy, c.idle, c.cpus, err = parseStat(stat); err != nil && c.cpus < 0 {
			t.Fatalf("%d processors", c.cpus)
		}
		if c.memoryTotal, c.memoryUsed, err = parseMemory(memory); err == nil && (c.memoryTotal <= 0 || c.memoryUsed < 0 || c.memoryUsed > c.memoryTotal) {
			t.Fatalf("memory %d, used %d", c.memoryTotal, c.memoryUsed)
		}
		if c.load, err = parseLoad(load); err == nil && !(c.load >= 0) {
			t.Fatalf("load %v", c.load)
		}
		c.network = parseNetwork(network)
		before := counters{network: map[string]traffic{}}
		for name := range c.network {
			before.network[name] = traffic{}
		}
		for _, s := range []protocol.Sample{before.until(c, time.Second), c.until(before, time.Second)} {
			if s.Received < 0 || s.Sent < 0 || !(s.CPU >= 0 && s.CPU <= float32(c.cpus)) {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// BenchmarkHost measures the cost of one sample; a Host takes one every 5
// seconds.
func BenchmarkHost(b *testing.B) {
	h := NewHost(nil)
	for b.Loop() {
		h.take(h.at.Add(time.Second))
	}
}
