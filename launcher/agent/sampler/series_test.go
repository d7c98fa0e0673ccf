//go:build linux

package sampler

import (
	"testing"
	"time"
)

// TestInactivityOfTask adds one sample per second, and checks Still and Quiet
// after the last one.
func TestInactivityOfTask(t *testing.T) {
	tick := func(n uint64) measure { return measure{cpu: map[int]uint64{7: n}} }
	for name, c := range map[string]struct {
		measures     []measure
		still, quiet time.Duration
	}{
		"nothing":                    {[]measure{{}, {}, {}, {}}, 3 * time.Second, 3 * time.Second},
		"output":                     {[]measure{{}, {}, {output: 1}, {output: 1}}, time.Second, time.Second},
		"a step":                     {[]measure{{step: 4}, {step: 4}, {step: 5}, {step: 5}}, time.Second, time.Second},
		"processor time":             {[]measure{tick(0), tick(100), tick(200), tick(300)}, 0, 3 * time.Second},
		"little processor time":      {[]measure{tick(0), tick(4), tick(8), tick(12)}, 3 * time.Second, 3 * time.Second},
		"just enough processor time": {[]measure{tick(0), tick(5), tick(10), tick(15)}, 0, 3 * time.Second},
		"a GPU":                      {[]measure{{}, {gpu: 5}, {gpu: 100}, {gpu: 100}}, 0, 3 * time.Second},
		"an idle GPU":                {[]measure{{}, {gpu: 4}, {gpu: 0}, {gpu: 4}}, 3 * time.Second, 3 * time.Second},
		"bytes through sockets":      {[]measure{{}, {net: map[int]uint64{1: socketNoise + 1}}, {}, {}}, 2 * time.Second, 2 * time.Second},
		"keepalives":                 {[]measure{{}, {net: map[int]uint64{1: socketNoise}}, {net: map[int]uint64{1: 2 * socketNoise}}, {}}, 3 * time.Second, 3 * time.Second},
		"a file":                     {[]measure{{}, {}, {}, {files: map[int]uint64{7: ioNoise + 1}}}, 0, 0},
		"wakeups":                    {[]measure{{}, {}, {}, {files: map[int]uint64{7: ioNoise}}}, 3 * time.Second, 3 * time.Second},
		"a process ends":             {[]measure{tick(100), {}, {}, {}}, 3 * time.Second, 3 * time.Second},
		"a new process computes":     {[]measure{tick(100), {cpu: map[int]uint64{7: 100, 8: 50}}, {}, {}}, 2 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Unix(1000, 0)
			s := newSeries(Target{}, at)
			for _, m := range c.measures {
				s.add(m, at, time.Second)
				at = at.Add(time.Second)
			}
			a := s.activity(at.Add(-time.Second))
			if a.Idle != c.still || a.IOIdle != c.quiet {
				t.Errorf("still for %s, quiet for %s; want %s, %s", a.Idle, a.IOIdle, c.still, c.quiet)
			}
		})
	}
}

// The time in which the host was suspended does not count as inactivity of the
// task.
func TestSuspendedHostIsNotInactive(t *testing.T) {
	at := time.Unix(1000, 0)
	s := newSeries(Target{}, at)
	s.add(measure{}, at, time.Second)
	s.add(measure{}, at.Add(time.Hour), time.Second)
	if a := s.activity(at.Add(time.Hour)); a.Idle != 0 || a.IOIdle != 0 {
		t.Errorf("still for %s, quiet for %s after an hour without samples", a.Idle, a.IOIdle)
	}
}

func TestEvery(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, 5 * time.Second: time.Second, 20 * time.Second: 2 * time.Second, 10 * time.Minute: 5 * time.Second} {
		if got := every(timeout); got != want {
			t.Errorf("for %s a sample every %s, want %s", timeout, got, want)
		}
	}
}
