package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// seated maps each task of TestSixCommands to the first line that it prints:
// its host and the GPU that it can use. Tasks are in the order of the resource
// file.
var seated = map[string]string{
	"worker:0": "h2 [0]", "worker:1": "h2 [1]", "worker:2": "h3 []", "worker:3": "h1 [1]", "worker:4": "h1 [3]",
	"ps:0": "h2 []", "ps:1": "h3 []", "ps:2": "h1 []",
}

// TestSixCommands uses the six main commands of plx in a row, on two hosts
// with GPUs and one without.
func TestSixCommands(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3, GPUs: []int{4, 2}}).withPlx()
	file := b.ResourceFile("h2", "h3", "h1: 1,3") // deliberately not in alphabetical order
	t.Run("probe", func(t *testing.T) { probeThree(b.in(t), file) })
	t.Run("launch", func(t *testing.T) {
		b := b.in(t)
		program := b.pourer()
		launch := b.start("launch", "--hosts", file, "--ps", "all", program.path)
		for task := range seated {
			launch.awaitLine(task, "up")
		}
		program.end(t, 0)
		b.poured(launch.want(0).stdout)
		b.hostsGone(0)
	})
	t.Run("detach, logs, attach", func(t *testing.T) { watchThree(b.in(t), file) })
	t.Run("detach, stop", func(t *testing.T) { stopThree(b.in(t), file) })
}

// probeThree checks that plx probe prints a line for each host and for each of
// its GPUs, including GPUs that the resource file does not name.
func probeThree(b *bench, file string) {
	table := b.want(0, "probe", "--hosts", file).stdout
	var hosts []string
	for _, found := range regexp.MustCompile(`(?m)^(h\d) .* ok$`).FindAllStringSubmatch(table, -1) {
		gpu := regexp.MustCompile(`(?m)^` + found[1] + ` +\d +(Tesla V100-SXM3-32GB|Quadro RTX 4000) .* GPU-`)
		hosts = append(hosts, fmt.Sprint(found[1], " ", len(gpu.FindAllString(table, -1))))
	}
	if want := []string{"h2 2", "h3 0", "h1 4"}; !slices.Equal(hosts, want) {
		b.t.Errorf("hosts and their GPUs: %q, want %q, in\n%s", hosts, want, table)
	}
}

// watchThree launches a job that needs nobody, and looks at it while it runs,
// until it fails, and after.
func watchThree(b *bench, file string) {
	program := b.pourer()
	job := b.detach("--hosts", file, "--ps", "all", program.path)
	follow := b.start("logs", "-f")
	attached := b.start("attach")
	attached.await(attached.stderr, "attached to job "+job)
	for task := range seated {
		follow.awaitLine(task, "up")
		attached.awaitLine(task, "up")
	}
	b.poured(b.want(0, "logs").stdout)
	program.end(b.t, 4)
	for _, stdout := range []string{attached.want(4).stdout, follow.want(0).stdout} {
		if got := lines(stdout, "worker:3"); got[len(got)-1] != "last line" {
			b.t.Errorf("worker:3 ended with %q", got[len(got)-1])
		}
	}
	b.poured(follow.stdout.String())
	b.poured(b.want(0, "logs", job).stdout)
	b.hostsGone(patience.Limit)
}

// stopThree stops a job whose tasks ignore the signals that ask them to end.
func stopThree(b *bench, file string) {
	dir := b.shared()
	job := b.detach("--hosts", file, "--ps", "all", b.script("deaf", "trap '' TERM; touch "+dir+"/$PLX_ROLE:$PLX_TASK_INDEX; exec sleep 300"))
	for task := range seated {
		b.appear(filepath.Join(dir, task))
	}
	contains(b.t, b.want(0, "stop", "--grace", "500ms").stderr, "job "+job+": stopped on 3 hosts")
	b.hostsGone(0)
	if j := b.jobsOf()[job]; j.State != "stopped" || j.Code == nil || *j.Code != 143 {
		b.t.Errorf("plx jobs: %+v", j)
	}
}

const pouredLines = 200

// pourer returns a program that prints its host and GPUs, then many lines, and
// then waits. When the test ends the program, worker:3 exits with the status
// that the test wrote to a file.
func (b *bench) pourer() holder {
	b.t.Helper()
	dir := b.shared()
	return holder{dir: dir, path: b.script("pour", fmt.Sprintf(`echo "$(cat /etc/hostname) [${CUDA_VISIBLE_DEVICES-not set}]"
seq %d
echo up
while [ -d %[2]s ] && [ ! -s %[2]s/end ]; do sleep 0.2; done
echo "last line"
[ "$PLX_RANK" = 3 ] && exit $(cat %[2]s/end); exit 0`, pouredLines, dir))}
}

// poured fails the test unless stdout contains everything that each task of a
// pourer printed before it waited, each line once and in order.
func (b *bench) poured(stdout string) {
	b.t.Helper()
	for task, seat := range seated {
		want := []string{seat}
		for i := range pouredLines {
			want = append(want, fmt.Sprint(i+1))
		}
		want = append(want, "up")
		got := lines(stdout, task)
		if len(got) > len(want) {
			got = got[:len(want)] // later lines depend on when the program is asked to end
		}
		if !slices.Equal(got, want) {
			b.t.Errorf("%s printed %d lines, want %d:\n%s", task, len(got), len(want), clip(strings.Join(got, "\n")))
		}
	}
}
