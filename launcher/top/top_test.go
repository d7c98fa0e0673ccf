package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/metrics"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// training returns a view of a job with a straggler on two hosts, one of which
// has a GPU.
func training(colour bool) (*View, *model) {
	line := live.New(nil)
	line.Update(func(s *live.State) { s.Doing = "running" })
	line.Tasks(0, 2, 2)
	now := time.Now()
	for i := range 60 {
		for task := range 3 {
			speed := []int{4, 4, 2}[task]
			text := fmt.Sprintf("step %d/900 loss: %.4f\n", i*speed, 2.0/float64(i+1))
			line.Chunk("h1", logs.Chunk{Source: logs.Source{Task: fmt.Sprint("worker:", task)}, Time: now.Add(time.Duration(i-60) * time.Second), Data: []byte(text)})
			line.Parts(false) // compute the line's values now, as drawing the view does
		}
	}
	v := New(Config{Title: "train", Line: line, Colour: colour})
	use := &protocol.HostUse{CPUs: 4, Load: 1.5, MemoryTotal: 16 << 30, Every: protocol.SampleEvery}
	for i := range protocol.MaxSamples {
		use.Samples = append(use.Samples, protocol.Sample{CPU: float32(i%5) * 0.9, Memory: 4 << 30, Received: 1 << 20, Sent: 300, GPU: -1})
	}
	busy := *use
	use.Trouble = "nvidia-smi: timed out"
	busy.GPUs = []protocol.GPUUse{{Index: 0, Name: "NVIDIA H100", Percent: 97, MemoryUsed: 60 << 30, MemoryTotal: 80 << 30, Temperature: 65, Power: 412, Owner: "worker:0"}}
	v.Set([]Host{{Name: "h1", Use: &busy}, {Name: "h2", Use: use}, {Name: "h3", Trouble: "connect: no route to host"}, {Name: "h4"}},
		[]Task{{Name: "worker:0", Host: "h1", State: "moves", Level: style.Good, Age: time.Minute}, {Name: "worker:1", Host: "h2", State: "moves", Level: style.Good}, {Name: "worker:2", Host: "h2", State: "moves", Waits: "it computes"}})
	for i := range 100 {
		fmt.Fprintf(v, "worker:%d h1 | line %d\n", i%3, i)
	}
	return v, newModel(v)
}

func (m *model) size(width, height int) string {
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(tick{})
	return m.View()
}

func (m *model) press(keys ...string) string {
	for _, key := range keys {
		switch key {
		case "enter":
			m.Update(tea.KeyMsg{Type: tea.KeyEnter})
		case "esc":
			m.Update(tea.KeyMsg{Type: tea.KeyEsc})
		case "up":
			m.Update(tea.KeyMsg{Type: tea.KeyUp})
		default:
			m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(key)})
		}
	}
	return m.View()
}

// On terminals of 60 columns or more, the view shows everything and fits the
// terminal.
func TestViewFitsTheTerminal(t *testing.T) {
	for _, width := range []int{40, 60, 100, 160} {
		for _, height := range []int{10, 24, 50} {
			_, m := training(false)
			screen := m.size(width, height)
			lines := strings.Split(screen, "\n")
			if len(lines) != height {
				t.Errorf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, line := range lines {
				if n := ansi.StringWidth(line); n > width {
					t.Errorf("%dx%d: %d cells: %q", width, height, n, line)
				}
			}
			want := []string{"plx top train | running", "HOSTS", "TASKS", "LOG", "line 99", "q quit"}
			if width >= 60 {
				want = append(want, "step 236/900")
			}
			if width >= 60 && height == 50 {
				want = append(want, "h1    cpu  90%", "mem  25%", "in 1.0M out 300B", "gpu 0", "97%", "60.0/80 GiB", "65 C", "412 W", "worker:0",
					"    nvidia-smi: timed out", "h3   connect: no route to host", "h4   not known", "slowest: worker:2 on h2, 2.0 times the median", "* worker:2", "LOSS  0.0333, least 0.0333", "█", "▁")
			}
			if width >= 100 && height == 50 {
				want = append(want, "loss 0.0333 | 4 steps/s | 2m46s left", "median step; it computes", "step 118 (2/s)  step 118/900 loss: 0.0333")
			}
			for _, text := range want {
				if !strings.Contains(screen, text) {
					t.Errorf("%dx%d: no %q in\n%s", width, height, text, screen)
				}
			}
		}
	}
	_, m := training(false)
	if screen := m.size(20, 24); screen != "20x24 is too small: 40x10" {
		t.Errorf("%q", screen)
	}
}

// Keys enlarge a pane, pause the log, search in the log and filter it.
func TestKeysControlThePanes(t *testing.T) {
	v, m := training(false)
	m.size(100, 24)
	see := func(screen string, want, not []string) {
		t.Helper()
		for _, text := range want {
			if !strings.Contains(screen, text) {
				t.Errorf("no %q in\n%s", text, screen)
			}
		}
		for _, text := range not {
			if strings.Contains(screen, text) {
				t.Errorf("%q is in\n%s", text, screen)
			}
		}
	}
	see(m.press("1"), []string{"HOSTS", "h4"}, []string{"TASKS", "LOG"})
	see(m.press("2"), []string{"TASKS", "worker:1"}, []string{"HOSTS", "LOG"})
	see(m.press("3"), []string{"LOG", "line 80"}, []string{"HOSTS", "TASKS"})
	see(m.press("3"), []string{"HOSTS", "TASKS", "LOG"}, nil)
	see(m.press("/"), []string{"search: "}, []string{"q quit"})
	see(m.press("line 1", "2", "enter"), []string{"line 12"}, []string{"line 99"})
	fmt.Fprintln(v, "worker:0 h1 | new")
	m.Update(tick{})
	see(m.View(), []string{"paused, 1 line came"}, []string{"| new"})
	see(m.press("G"), []string{"| new"}, []string{"paused"})
	see(m.press("f", "line 9[01]", "enter"), []string{"line 90", "line 91", "only line 9[01]"}, []string{"line 89", "line 92"})
	see(m.press("esc"), []string{"line 99"}, []string{"only"})
	see(m.press("f", "(", "enter"), []string{"missing closing )"}, nil)
	see(m.press("/", "nowhere", "enter"), []string{"no line matches"}, nil)
	see(m.press("up", "up"), []string{"paused"}, nil)
	v.End("failed: worker:1 exited with status 3")
	m.Update(tick{})
	see(m.View(), []string{"plx top train | failed: worker:1"}, nil)
	if _, cmd := m.Update(tea.KeyMsg{Type: tea.KeyCtrlC}); cmd == nil || cmd() != tea.Quit() {
		t.Error("Ctrl-C does not leave")
	}
}

// Names, numbers and lines from hosts, tasks and programs cannot send control
// sequences to the terminal.
func TestForeignTextCannotControlTheTerminal(t *testing.T) {
	v, m := training(true)
	bad := "x\x1b[2J\x1b]0;t\a\n\r\u202e"
	v.Set([]Host{{Name: bad, Use: &protocol.HostUse{Trouble: bad, GPUs: []protocol.GPUUse{{Name: bad, Owner: bad, Percent: 1 << 40, Power: -3}}, Samples: []protocol.Sample{{CPU: -5, Memory: -1, Received: -1}, {CPU: 1e30}}}}, {Name: bad, Trouble: bad}},
		[]Task{{Name: bad, Host: bad, State: bad, Waits: bad}})
	m.now.Line.Chunk("h", logs.Chunk{Source: logs.Source{Task: bad}, Data: []byte("step 1 " + bad + "\nloss: 1e999\n")})
	for _, keys := range [][]string{nil, {"1"}, {"2"}} {
		m.size(100, 40)
		screen := m.press(keys...)
		if rest := strings.ReplaceAll(ansi.Strip(screen), "\n", ""); strings.ContainsAny(rest, "\x1b\a\r\u202e") || strings.Contains(screen, "\x1b[2J") {
			t.Errorf("%q", screen)
		}
		if n := strings.Count(screen, "\n"); n != 39 {
			t.Errorf("%d lines", n+1)
		}
	}
	if !strings.Contains(m.size(100, 40), "\x1b[") {
		t.Error("no colours")
	}
}

// A View keeps only the newest lines, and does not show an incomplete line.
func TestLinesAreBounded(t *testing.T) {
	v := New(Config{})
	for i := range 3 * maxLines {
		fmt.Fprintf(v, "%d\n", i)
	}
	fmt.Fprint(v, strings.Repeat("x", 3*maxRest))
	if n := len(v.lines); n < maxLines || n > maxLines+maxLines/10 || v.lines[n-1] != fmt.Sprint(3*maxLines-1) || len(v.rest) != maxRest {
		t.Errorf("%d lines, the last one is %q; %d bytes without an end", n, v.lines[n-1], len(v.rest))
	}
}

func TestStragglerIsNamed(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		slow  int
		ratio float64
	}{
		{nil, -1, 0}, {[]float64{3}, -1, 0}, {[]float64{3, 0}, -1, 0}, {[]float64{3, 2.9, 3.1}, -1, 0},
		{[]float64{4, 4, 1, 4}, 2, 4}, {[]float64{2, 4}, 0, 2}, {[]float64{0, 2, 0, 1}, 3, 2},
	} {
		var tasks []live.Task
		for _, r := range c.rates {
			tasks = append(tasks, live.Task{Rate: r})
		}
		if slow, ratio := straggler(tasks); slow != c.slow || ratio != c.ratio {
			t.Errorf("%v: %d, %.2f", c.rates, slow, ratio)
		}
	}
}

// The curve uses its first and its last row, even if each column is the mean
// of several losses.
func TestCurveUsesAllRows(t *testing.T) {
	line := live.New(nil)
	for i := range 200 {
		line.Report("worker:0", metrics.Sample{{Name: "loss", Number: metrics.Number(2.0 / float64(i+1))}}, time.Now().Add(time.Duration(i)*time.Second))
	}
	m := newModel(New(Config{Line: line}))
	m.width = 60
	curve := m.curve(5)
	if len(curve) != 5 || curve[0] != "LOSS  0.01, least 0.01" || !strings.Contains(curve[1], "█") || !strings.HasSuffix(curve[4], "▁") {
		t.Errorf("\n%s", strings.Join(curve, "\n"))
	}
}

// The graph of a host's load covers all samples of the host, even if there are
// more samples than columns.
func TestLoadGraphCoversAllSamples(t *testing.T) {
	use := protocol.HostUse{CPUs: 2}
	for i := range protocol.MaxSamples {
		use.Samples = append(use.Samples, protocol.Sample{CPU: []float32{2, 0}[min(1, i/9)]})
	}
	if line := newModel(New(Config{})).host(use, 100); !strings.Contains(line, " ██▆▁") {
		t.Errorf("%q", line)
	}
}

// If all tasks make each step together, the view names the task that computes
// while the others wait.
func TestAwaitedTaskIsNamed(t *testing.T) {
	line := live.New(nil)
	line.Update(func(s *live.State) { s.Doing = "running" })
	v := New(Config{Title: "train", Line: line})
	m := newModel(v)
	head := func(computing ...bool) string {
		var tasks []Task
		for i, c := range computing {
			tasks = append(tasks, Task{Name: fmt.Sprint("worker:", i), Host: "h1", State: "moves", Computes: c})
		}
		for range 20 {
			v.Set(nil, tasks)
		}
		for line := range strings.Lines(m.size(100, 24)) {
			if strings.HasPrefix(line, "TASKS") {
				return strings.TrimSpace(line)
			}
		}
		return ""
	}
	for want, computing := range map[string][]bool{
		"TASKS  awaited: worker:1 on h1 computes in 100% of the polls, the others wait": {false, true, false},
		"TASKS": {true, true, false},
	} {
		if got := head(computing...); got != want {
			t.Errorf("%v: %q, want %q", computing, got, want)
		}
	}
	if got := head(true); got != "TASKS" {
		t.Errorf("alone: %q", got)
	}
	head(false, true, false)
	v.Set(nil, []Task{{Name: "worker:0", Computes: true}, {Name: "worker:1"}, {Name: "worker:2"}}) // one poll is not enough to name a task
	if m.size(100, 24); awaited(m.now.tasks, m.now.busy) != 1 {
		t.Errorf("after one look: %v", m.now.busy)
	}
}
