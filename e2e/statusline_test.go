package e2e

import (
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestStatusLine checks the row on a terminal, below the lines of the tasks,
// that shows the state of the job. It must not mix with other lines, and must
// disappear at the end.
func TestStatusLine(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	end := filepath.Join(b.shared(), "end")
	script := b.script("s", `echo begin; echo COST is 7.5; for i in 1 2 3; do echo "step $i/40 loss: 0.5$i"; sleep 0.3; done
printf 'half a '; sleep 0.5; echo line
for i in 10 20 30; do printf '\r 50%%|## | %d/40 [00:10<00:12, 4.50it/s, loss=0.4]' $i; sleep 0.2; done; echo
until [ -e `+end+` ]; do sleep 0.05; done; echo "step 40/40 loss: nan"; echo end`)
	launch := []string{"launch", "--hosts", b.ResourceFile("h1", "h2"), "--ps", "none", "--name", "shown", "--metric", "cost=COST is ([0-9.]+)", script}

	begun := time.Now()
	text := onTerminal(b, 0, func(seen string, _ io.Writer) bool {
		if !strings.Contains(plain(seen), "step 30/40 | loss 0.4 | cost 7.5") {
			return false
		}
		t.Run("attach and logs -f", func(t *testing.T) {
			for _, args := range [][]string{{"attach", "shown"}, {"logs", "-f", "shown"}} {
				b := b.in(t)
				leave := func(seen string, terminal io.Writer) bool {
					if !regexp.MustCompile(`plx: running \d+s \| .*2 tasks`).MatchString(plain(seen)) {
						return false
					}
					terminal.Write([]byte{3})
					return true
				}
				onTerminal(b, 130, leave, args...)
			}
		})
		var status struct {
			TaskStatus []struct{ Metrics map[string]float64 }
		}
		text := b.want(0, "status", "--json", "shown").stdout
		if err := json.Unmarshal([]byte(text), &status); err != nil || len(status.TaskStatus) != 2 {
			t.Errorf("%v: %s", err, text)
		}
		for _, task := range status.TaskStatus {
			if m := task.Metrics; m["loss"] != 0.4 || m["step"] != 30 || m["steps"] != 40 || m["cost"] != 7.5 {
				t.Errorf("metrics %v", m)
			}
		}
		put(t, end, "", 0o644)
		return true
	}, launch...)
	took := time.Since(begun)
	screen := rendered(text)
	for _, want := range []string{"begin", "step 3/40 loss: 0.53", "half a line", "step 40/40 loss: nan", "end"} {
		for _, host := range []string{"worker:0 h1 | ", "worker:1 h2 | "} {
			if !slices.Contains(strings.Split(screen, "\n"), host+want) {
				t.Errorf("%s%s is no line of the screen:\n%s", host, want, screen)
			}
		}
	}
	if strings.Contains(screen, "running") {
		t.Errorf("the row stays:\n%s", screen)
	}
	rows := regexp.MustCompile(`plx: running[^\r\n]*`).FindAllString(plain(text), -1)
	if n := len(rows); n < 5 || n > 10*int(took.Seconds()+1) {
		t.Errorf("%d drawings in %s", n, took)
	}
	if found := regexp.MustCompile(`\x1b\[[0-9;]*[^0-9;mKA]`).FindString(text); found != "" {
		t.Errorf("%q, which a terminal does not forget", found)
	}
	if text := onTerminal(b, 0, nil, slices.Insert(launch, 1, "--no-status")...); strings.Contains(plain(text), "plx: running") {
		t.Errorf("in spite of --no-status:\n%s", text)
	}
	if res := b.want(0, launch...); strings.Contains(res.stderr+res.stdout, "plx: running") {
		t.Errorf("in a pipe:\n%s", res.stderr)
	}
	b.hostsGone(0)
}

// plain is text without colours.
func plain(text string) string {
	return regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(text, "")
}
