package transition

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestFreeMemory(t *testing.T) {
	const meminfo = "MemTotal: 100 kB\nMemAvailable:    50 kB\n"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  uint64
	}{
		"no groups": {fstest.MapFS{}, 50 << 10},
		"version 2": {fstest.MapFS{
			"proc/self/cgroup":                   file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max":       file("max\n"),
			"sys/fs/cgroup/a/b/memory.current":   file("1\n"),
			"sys/fs/cgroup/a/memory.max":         file("20480\n"),
			"sys/fs/cgroup/a/memory.current":     file("10240\n"),
			"sys/fs/cgroup/a/memory.stat":        file("anon 5\ninactive_file 1024\n"),
			"sys/fs/cgroup/memory.stat":          file("inactive_file 1024\n"),
			"sys/fs/cgroup/elsewhere/memory.max": file("0\n"),
		}, 20480 - 10240 + 1024},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup": file("5:cpu,cpuacct:/x\n4:memory:/job\n0::/unified\n"),
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": file("4096"),
			"sys/fs/cgroup/memory/job/memory.usage_in_bytes": file("5000"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     file("9223372036854771712"),
			"sys/fs/cgroup/memory/memory.usage_in_bytes":     file("1"),
		}, 0},
		"container": {fstest.MapFS{
			"proc/self/cgroup":             file("0::/../../elsewhere\n"),
			"sys/fs/cgroup/memory.max":     file("8192\n"),
			"sys/fs/cgroup/memory.current": file("8000\n"),
			"sys/fs/cgroup/memory.stat":    file("nonsense\ninactive_file x\n"),
		}, 192},
		"the host has less": {fstest.MapFS{
			"proc/self/cgroup":             file("0::/\n"),
			"sys/fs/cgroup/memory.max":     file("1000000\n"),
			"sys/fs/cgroup/memory.current": file("0\n"),
		}, 50 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["proc/meminfo"] = file(meminfo)
			if got, err := freeOn(c.files); got != c.want || err != nil {
				t.Errorf("got %d, %v; want %d", got, err, c.want)
			}
		})
	}
	for _, files := range []fstest.MapFS{{}, {"proc/meminfo": file("MemAvailable: lots kB")}, {"proc/meminfo": file("MemFree: 1 kB")}} {
		if got, err := freeOn(files); err == nil || !strings.Contains(err.Error(), "free memory") {
			t.Errorf("got %d, %v", got, err)
		}
	}
}
