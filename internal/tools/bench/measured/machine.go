// Package measured is what programs that measure plx have in common: samples in the format
// of Go's benchmarks, which benchstat reads, with the facts about the machine; tables,
// plots and pages made of them; and programs that are built and followed. It measures
// nothing itself.
package measured

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// Fact is a line "key: value" of a file of samples. Nothing is one without a value.
func Fact(key, value string) benchfmt.Config {
	return benchfmt.Config{Key: key, Value: []byte(value), File: true}
}

// Facts are what a reader must know to judge numbers: this machine, the commit of the
// working directory, and the command that repeats what is measured. What cannot be found
// out is "unknown".
func Facts(command string) []benchfmt.Config {
	load := strings.Fields(content("/proc/loadavg"))
	return []benchfmt.Config{
		Fact("date", time.Now().UTC().Format("2006-01-02 15:04 UTC")),
		Fact("commit", Said("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*")),
		Fact("cpu", field("/proc/cpuinfo", "model name", ":")),
		Fact("cores", strconv.Itoa(runtime.NumCPU())),
		Fact("memory", field("/proc/meminfo", "MemTotal", ":")),
		Fact("load-before", strings.Join(load[:min(3, len(load))], " ")), // before the first run: other programs' share
		Fact("system", strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)),
		Fact("kernel", Said("uname", "-sr")),
		Fact("go", runtime.Version()),
		Fact("command", command),
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
	text, _ := os.ReadFile(path) // without one it is as good as a file that says nothing
	return string(text)
}

// Said is what a program prints, or "unknown": nothing is measured by it.
func Said(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if text := string(bytes.TrimSpace(out)); err == nil && text != "" {
		return text
	}
	return "unknown"
}
