package testhosts

import (
	"fmt"
	"testing"
)

func TestParseRate(t *testing.T) {
	for rate, want := range map[string]float64{
		"100mbit": 1e8, "1gbit": 1e9, "1.5Gbit": 1.5e9, "8kbit": 8000, "10bit": 10,
		"": 0, "mbit": 0, "-1mbit": 0, "100": 0, "1mbps": 0, "NaNbit": 0, "1e300gbit": 0, "0bit": 0,
	} {
		got, err := ParseRate(rate)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", rate, got, err)
		}
	}
}

func TestShaping(t *testing.T) {
	for rate, want := range map[string][2]int{
		"1gbit": {125000, 65536}, "200mbit": {25000, 23900}, "100mbit": {17484, 16384}, "8mbit": {4096, 65536}, "what": {4096, 65536},
	} {
		if burst, segment := shaping(rate); burst != want[0] || segment != want[1] {
			t.Errorf("%q: %d, %d, want %v", rate, burst, segment, want)
		}
	}
}

// The traffic counters must count what a host sends, on its own link and on
// the receiver's.
func TestTraffic(t *testing.T) {
	c := Start(t, Options{Hosts: 2})
	const size = 1 << 20
	count := func() (all [4]uint64) {
		for i, h := range c.Hosts {
			var err error
			if all[2*i], all[2*i+1], err = h.Traffic(); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	before := count()
	mustSSH(t, c, c.Hosts[0], fmt.Sprintf("head -c %d /dev/zero", size))
	after := count()
	if sent := after[0] - before[0]; sent < size || sent > 2*size {
		t.Errorf("h1 sent %d bytes, and is said to have sent %d", size, sent)
	}
	for _, i := range []int{1, 2, 3} {
		if other := after[i] - before[i]; other > size/2 {
			t.Errorf("%d bytes by another link or the other way", other)
		}
	}
	c.Hosts[0].PowerOff()
	if _, _, err := c.Hosts[0].Traffic(); err == nil {
		t.Error("a host without power has a link")
	}
}
