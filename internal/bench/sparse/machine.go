package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
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
	Date      string `json:"date"`
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Memory    string `json:"memory"`
	Kernel    string `json:"kernel"`
	System    string `json:"system"`
	Go        string `json:"go"`
	PyTorch   string `json:"pytorch"`
	OpenBLAS  string `json:"openblas"`
	Commit    string `json:"commit"`
	Load      string `json:"load"` // before the first run: other programs' share
	Command   string `json:"command"`
}

func describeMachine(root, command string) Machine {
	return Machine{
		Date:      time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		Processor: field("/proc/cpuinfo", "model name", ":"),
		Cores:     runtime.NumCPU(),
		Memory:    field("/proc/meminfo", "MemTotal", ":"),
		Kernel:    said("", "uname", "-sr"),
		System:    strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`),
		Go:        runtime.Version(),
		PyTorch:   said("", "dpkg-query", "-W", "-f", "${Version}", "python3-torch"),
		OpenBLAS:  said("", "dpkg-query", "-W", "-f", "${Version}", "libopenblas0-pthread"),
		Commit:    said(root, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"),
		Load:      strings.Join(strings.Fields(content("/proc/loadavg"))[:min(3, len(strings.Fields(content("/proc/loadavg"))))], " "),
		Command:   command,
	}
}

// field finds a line's value in a file of lines NAME SEPARATOR VALUE.
func field(path, name, separator string) string {
	for line := range strings.Lines(content(path)) {
		if key, value, found := strings.Cut(line, separator); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func content(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // as good as a file that says nothing
	}
	return string(text)
}

// said is what a program prints, or unknown: nothing is measured by it.
func said(dir, name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if text := string(bytes.TrimSpace(out)); err == nil && text != "" {
		return text
	}
	return "unknown"
}

// moduleRoot is the folder of the module that the program is run in.
func moduleRoot() (string, error) {
	mod := said("", "go", "env", "GOMOD")
	root, found := strings.CutSuffix(mod, "/go.mod")
	if !found {
		return "", errors.New("run it inside plx's source: go run ./internal/bench/sparse")
	}
	return root, nil
}
