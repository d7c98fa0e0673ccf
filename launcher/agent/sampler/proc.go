//go:build linux

package sampler

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// counters are the host's counters in /proc, read at one time.
type counters struct {
	busy, idle  uint64 // CPU time of all processors since boot, in clock ticks
	cpus        int
	load        float64
	memoryTotal int64 // memory of the host in bytes
	memoryUsed  int64
	network     map[string]traffic // counters of each network interface except the loopback, by name
}

// traffic is the number of bytes that a network interface has received and
// sent since it was created.
type traffic struct{ received, sent uint64 }

// readCounters reads the counters in /proc. A counter that cannot be read is
// 0, and the error says why.
func readCounters() (c counters, err error) {
	failed := []error{
		parsed("/proc/stat", func(text []byte) (err error) { c.busy, c.idle, c.cpus, err = parseStat(text); return err }),
		parsed("/proc/meminfo", func(text []byte) (err error) { c.memoryTotal, c.memoryUsed, err = parseMemory(text); return err }),
		parsed("/proc/net/dev", func(text []byte) error { c.network = parseNetwork(text); return nil }),
		parsed("/proc/loadavg", func(text []byte) (err error) { c.load, err = parseLoad(text); return err }),
	}
	return c, errors.Join(failed...)
}

func parsed(path string, parse func([]byte) error) error {
	text, err := os.ReadFile(path)
	if err == nil {
		if err = parse(text); err != nil {
			err = fmt.Errorf("read %s: %w", path, err)
		}
	}
	return err
}

// parseStat parses the CPU time in /proc/stat: "cpu  USER NICE SYSTEM IDLE
// IOWAIT IRQ SOFTIRQ STEAL ...". Stolen time, in which the hypervisor ran
// other virtual machines, counts as idle.
func parseStat(text []byte) (busy, idle uint64, cpus int, err error) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		switch {
		case len(fields) == 0 || !bytes.HasPrefix(fields[0], []byte("cpu")):
			// Stop here, because the lines after those about the CPUs are long
			// and not needed.
			return busy, idle, cpus, enough(cpus > 0 && busy+idle > 0, "it has no line about a CPU")
		case len(fields[0]) > len("cpu"):
			cpus++
			continue
		}
		for i, field := range fields[1:min(len(fields), 9)] {
			n, err := strconv.ParseUint(string(field), 10, 64)
			if err != nil {
				return 0, 0, 0, err
			}
			switch i {
			case 3, 4, 7:
				idle += n
			default:
				busy += n
			}
		}
	}
	return busy, idle, cpus, enough(cpus > 0 && busy+idle > 0, "it has no line about a CPU")
}

func enough(ok bool, otherwise string) error {
	if !ok {
		return errors.New(otherwise)
	}
	return nil
}

// maxKiB is the largest accepted amount of memory in KiB; its number of bytes
// fits into an int64.
const maxKiB = 1 << 52

// parseMemory returns the total and the used memory in bytes, from the text of
// /proc/meminfo.
func parseMemory(text []byte) (total, used int64, err error) {
	available := int64(-1)
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		var to *int64
		switch string(name) {
		case "MemTotal":
			to = &total
		case "MemAvailable":
			to = &available
		default:
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) != 2 || string(fields[1]) != "kB" {
			return 0, 0, fmt.Errorf("%s is not in kB", name)
		}
		kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
		if err != nil || kib < 0 || kib > maxKiB {
			return 0, 0, fmt.Errorf("%s is no amount", name)
		}
		*to = kib << 10
	}
	return total, max(0, total-available), enough(total > 0 && available >= 0, "it lacks MemTotal or MemAvailable")
}

// parseNetwork parses /proc/net/dev. In each line, field 1 after the
// interface's name is the number of received bytes, and field 9 that of sent
// bytes.
func parseNetwork(text []byte) map[string]traffic {
	all := map[string]traffic{}
	for line := range bytes.Lines(text) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(rest)
		if !ok || len(fields) < 9 || string(bytes.TrimSpace(name)) == "lo" {
			continue
		}
		received, err1 := strconv.ParseUint(string(fields[0]), 10, 64)
		sent, err2 := strconv.ParseUint(string(fields[8]), 10, 64)
		if err1 == nil && err2 == nil {
			all[string(bytes.TrimSpace(name))] = traffic{received, sent}
		}
	}
	return all
}

// parseLoad returns the load average of the last minute, the first field of
// /proc/loadavg.
func parseLoad(text []byte) (float64, error) {
	first, _, _ := bytes.Cut(text, []byte(" "))
	load, err := strconv.ParseFloat(string(first), 64)
	if err == nil && !(load >= 0 && load < 1e9) {
		err = fmt.Errorf("%q is no load", first)
	}
	return load, err
}
