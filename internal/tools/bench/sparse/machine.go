package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/measured"
)

// cpu is what the machine's cores have done since it started, in ticks.
type cpu struct {
	busy, all float64
	at        time.Time
}

// readCPU reads the first line of /proc/stat, see proc(5): idle is the fourth
// number, waiting for a disk the fifth.
func readCPU() (cpu, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpu{}, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return parseCPU(first)
}

func parseCPU(line string) (cpu, error) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return cpu{}, fmt.Errorf("/proc/stat begins with %.80q", line)
	}
	c := cpu{at: time.Now()}
	for i, field := range fields[1:9] { // what guests use is in user and nice already
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return cpu{}, fmt.Errorf("/proc/stat: %w", err)
		}
		c.all += n
		if i != 3 && i != 4 {
			c.busy += n
		}
	}
	return c, nil
}

// busyCores is how many cores were busy on the average since an earlier look,
// with the kernel's work for packets, and with what other programs did.
func (c cpu) busyCores(before cpu) float64 {
	if c.all <= before.all {
		return 0
	}
	return (c.busy - before.busy) / (c.all - before.all) * float64(runtime.NumCPU())
}

// Machine is what a reader must know to judge the numbers.
type Machine struct {
	measured.Machine
	PyTorch  string `json:"pytorch"`
	OpenBLAS string `json:"openblas"`
}

func describeMachine(root, command string) Machine {
	return Machine{
		Machine:  measured.Describe(root, command),
		PyTorch:  measured.Said("", "dpkg-query", "-W", "-f", "${Version}", "python3-torch"),
		OpenBLAS: measured.Said("", "dpkg-query", "-W", "-f", "${Version}", "libopenblas0-pthread"),
	}
}
