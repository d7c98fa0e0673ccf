package testhosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Traffic is how many bytes the host's link has carried since the power came
// on, from the host and to it. Headers of Ethernet, IP and TCP are in it as
// often as the kernel hands packets over, which is less often than they would
// be on a wire: a large segment counts once.
func (h *Host) Traffic() (from, to uint64, err error) {
	folder := filepath.Join("/sys/class/net", h.link(), "statistics")
	if from, err = readCount(filepath.Join(folder, "rx_bytes")); err != nil {
		return 0, 0, fmt.Errorf("testhosts: traffic of %s: %w", h.Name, err)
	}
	if to, err = readCount(filepath.Join(folder, "tx_bytes")); err != nil {
		return 0, 0, fmt.Errorf("testhosts: traffic of %s: %w", h.Name, err)
	}
	return from, to, nil
}

// Logins is how often somebody has logged in over SSH so far: every connection
// counts once, whatever runs on it.
func (h *Host) Logins() (int, error) {
	log, err := os.ReadFile(h.path("log"))
	if err != nil {
		return 0, fmt.Errorf("testhosts: logins of %s: %w", h.Name, err)
	}
	return strings.Count("\n"+string(log), "\nAccepted "), nil
}

func readCount(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// ParseRate reads a rate as tc(8) writes it, such as 100mbit or 1.5gbit, in
// bits per second.
func ParseRate(rate string) (float64, error) {
	lower := strings.ToLower(rate)
	for _, unit := range []struct {
		name string
		bits float64
	}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}} {
		if number, found := strings.CutSuffix(lower, unit.name); found {
			n, err := strconv.ParseFloat(number, 64)
			if err != nil || !(n*unit.bits >= 1 && n*unit.bits <= 1e15) {
				break
			}
			return n * unit.bits, nil
		}
	}
	return 0, fmt.Errorf("testhosts: rate %q: want a number and bit, kbit, mbit or gbit", rate)
}

// largestSegment is what the kernel hands a link at once at most.
const largestSegment = 65536

// shaping is what a link of a rate may send at once, and how large the pieces
// are that it is handed. A piece that is larger than the burst would be cut
// into packets one by one, which costs ten times the processor time: so a link
// of 50 Mbit/s or more may send what it carries in a millisecond, or a piece
// of 16 KiB, at once. Slower ones send two packets at most.
func shaping(rate string) (burst, segment int) {
	const few, piece, head = 4096, 16384, 1100
	bits, err := ParseRate(rate)
	if err != nil || bits < 50e6 {
		return few, largestSegment
	}
	burst = max(piece+head, int(bits/8/1000))
	return burst, min(burst-head, largestSegment)
}
