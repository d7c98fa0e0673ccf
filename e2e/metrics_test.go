package e2e

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestMetrics checks the progress that plx metrics reports, while a job runs
// and after its end, once and over HTTP.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	end := filepath.Join(b.shared(), "end")
	file := b.ResourceFile("h1", "h2")
	job := b.detach("--hosts", file, "--ps", "none", "--name", "told", b.script("s", `for i in 1 2 3; do echo "step $i/9 loss: 0.$i acc: 0.5"; done
until [ -e `+end+` ]; do sleep 0.1; done; echo "step 9/9 loss: 0.125"; [ $RANK = 0 ]`))
	task := func(name, value string) string {
		return `(?m)^` + name + `\{host="h2",job="` + job + `",task="worker:1"\} ` + value + `$`
	}
	running := []string{`(?m)^plx_job_state\{job="` + job + `",state="running"\} 1`, task("plx_task_step", "3(.0)?"), task("plx_task_loss", "0.3"), `plx_host_up\{host="h1",.*\} 1`, `plx_host_memory_bytes\{host="h1",`}
	ended := []string{`state="failed"\} 1`, task("plx_task_step", "9(.0)?"), task("plx_task_loss", "0.125"), task("plx_task_exit_code", "1(.0)?"), task("plx_task_running", "0(.0)?")}

	served := b.start("metrics", "told", "--listen", "127.0.0.1:0")
	served.await(served.stderr, "metrics of job "+job+": http://")
	url := regexp.MustCompile(`http://\S+`).FindString(served.stderr.String())
	scraped := func(want []string) bool {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if answer.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return unmatched(string(text), want) == ""
	}
	await(t, "the metrics of a running job", func() bool { return scraped(running) })
	await(t, "the metrics at once", func() bool { return unmatched(b.want(0, "metrics", job).stdout, running) == "" })
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	contains(t, b.want(2, "metrics", job, "--listen", addr).stderr, "--listen "+addr+": the address is in use", "take another port")
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, b.want(2, "metrics", job, "--listen", ":"+port).stderr, "it names no address", "without a password")
	contains(t, b.want(2, "metrics", job, "--json", "--listen", addr).stderr, "exclude each other")

	put(t, end, "", 0o644)
	b.want(1, "attach", job)
	await(t, "the metrics of the job that has ended", func() bool { return scraped(ended) })
	served.cmd.Process.Signal(syscall.SIGINT)
	served.want(130)
	if missing := unmatched(b.want(0, "metrics", job).stdout, ended); missing != "" {
		t.Errorf("no %s", missing)
	}
	for _, way := range [][]string{{job}, {"--hosts", file, "told"}} {
		from := b
		if len(way) > 1 {
			from = b.elsewhere()
		}
		losses := map[string][]float64{}
		for line := range strings.Lines(from.want(0, append([]string{"metrics", "--json"}, way...)...).stdout) {
			var p struct {
				Time, Host, Task, Metric string
				Step                     int64
				Value                    float64
			}
			if err := json.Unmarshal([]byte(line), &p); err != nil || p.Time == "" || p.Host == "" || p.Step == 0 {
				t.Errorf("%v: %s", err, line)
			}
			if p.Metric == "loss" {
				losses[p.Task] = append(losses[p.Task], p.Value)
			}
		}
		for _, task := range []string{"worker:0", "worker:1"} {
			if got := losses[task]; len(got) != 4 || got[0] != 0.1 || got[3] != 0.125 {
				t.Errorf("%s: losses %v", task, got)
			}
		}
	}
	silent := b.detach("--hosts", file, "--ps", "none", "true")
	b.want(0, "attach", silent)
	contains(t, b.want(125, "metrics", "--json", silent).stderr, "its tasks have reported no metrics", "--metric")
	res := b.want(0, "metrics", silent)
	contains(t, res.stdout, `state="done"} 1`)
	contains(t, res.stderr, "its tasks have reported no metrics")
	b.hostsGone(0)
}

// await waits until so returns true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience.Limit); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// unmatched returns the first pattern that text does not match, or "" if it
// matches all.
func unmatched(text string, patterns []string) string {
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(text) {
			return p
		}
	}
	return ""
}
