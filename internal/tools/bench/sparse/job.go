package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/internal/tools/bench/measured"
)

// runOf is one run of a system (a method of training). It parses the job's
// output and measures the job.
type runOf struct {
	words         int // number of words that a step trains on
	hosts         []*testhosts.Host
	window        window
	settle        int // number of steps to skip after plx has moved variables to other servers
	before, after look
	homes         homes
	choice        int    // number of partitions into which plx has divided the variables; 0 means that plx has not chosen a number
	said          string // message with which plx reported its choice of the number of partitions
}

// homes maps a variable to the server that holds it. A variable that is
// divided among several servers has no entry.
type homes map[string]string

// look is a snapshot of the machine's counters.
type look struct {
	cpu  cpu
	at   time.Time
	link [][2]uint64 // bytes that the link of each host has carried, from the host and to the host, indexed by host
}

func (r *runOf) look() (l look, err error) {
	if l.cpu, err = readCPU(); err != nil {
		return l, err
	}
	l.at = time.Now()
	for _, h := range r.hosts {
		from, to, err := h.Traffic()
		if err != nil {
			return l, err
		}
		l.link = append(l.link, [2]uint64{from, to})
	}
	return l, nil
}

// line processes one line of the job's output, which arrived at the time now.
// done is true when all steps have been measured.
func (r *runOf) line(line string, now time.Time) (done bool, err error) {
	if r.window.finished {
		return true, nil
	}
	number, words, ok := readStep(line)
	if !ok {
		if found := homeLine.FindStringSubmatch(line); found != nil {
			r.homes[found[1]] = found[2]
		} else if moveLine.MatchString(line) {
			r.window.disturbed(r.settle)
			if found := choiceLine.FindStringSubmatch(line); found != nil {
				_, r.said, _ = strings.Cut(line, "plx: ")
				_, err = fmt.Sscan(found[1], &r.choice)
			}
		}
		return false, err
	}
	opens := r.window.step(number, 1000*float64(r.words)/words, now)
	if opens {
		r.before, err = r.look()
	}
	if r.window.finished {
		r.after, err = r.look()
	}
	return r.window.finished, err
}

// values returns the measurements: time of a step, words per second, link
// traffic and busy cores.
func (r *runOf) values() []benchfmt.Value {
	sum, link := 0.0, 0.0
	for _, ms := range r.window.millis {
		sum += ms / 1000
	}
	step := sum / float64(len(r.window.millis))
	// The job's lines arrive late if data is queued in the links. This delay
	// does not affect the time between the two snapshots of counters, so
	// relate their differences to that time.
	perStep := step / r.after.at.Sub(r.before.at).Seconds()
	for i, before := range r.before.link { // only the busier direction of the busiest link counts
		after := r.after.link[i]
		link = max(link, math.Round(float64(max(after[0]-before[0], after[1]-before[1]))*perStep))
	}
	return []benchfmt.Value{{Value: step, Unit: "sec/op"}, {Value: float64(r.words) / step, Unit: "words/s"},
		{Value: link, Unit: "link-B/op"}, {Value: r.after.cpu.busyCores(r.before.cpu), Unit: "cores"}}
}

// follow runs a system until enough steps have been measured, and then stops
// the run.
func (b *bench) follow(ctx context.Context, x system, hosts int, logName string) (r *runOf, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	r = &runOf{words: hosts * b.model.Batch * b.model.Length, hosts: b.cluster.Hosts[:hosts], window: b.windowOf(x), settle: min(b.settle, 20), homes: homes{}}
	log := io.Discard
	if b.logs != "" {
		file, err := os.Create(filepath.Join(b.logs, logName))
		if err != nil {
			return r, err
		}
		defer file.Close() // an error of Close does not matter, because the log is only for a reader
		log = file
	}
	last := ""
	err = measured.Follow(b.command(ctx, x, hosts), func(line string) (bool, error) {
		last = line
		fmt.Fprintln(log, line) // an error of writing the log must not stop the run
		return r.line(line, time.Now())
	})
	if err == nil && !r.window.finished {
		err = fmt.Errorf("it ended too early: %s", last)
	}
	return r, err
}

// windowOf returns which steps of a system's run are measured. A system that
// moves its variables in its first steps gets a fixed number of warm-up steps.
// Other systems warm up for fewer steps, or for half the time of the window
// but at least two steps.
func (b *bench) windowOf(x system) window {
	w := window{warm: min(20, b.settle), warmFor: b.window / 2, patience: 5 * b.settle, most: b.steps, length: b.window}
	if x.moves || x.places {
		w.warm, w.warmFor = b.settle, 0
	}
	if x.places {
		w.warm = min(w.warm, 40)
	}
	return w
}

// command returns the command that launches the job. PyTorch computes with one
// thread, because a worker of plx does so too.
func (b *bench) command(ctx context.Context, x system, hosts int) *exec.Cmd {
	args := []string{"launch", "-v", "--color", "never", "--hosts", b.files[hosts]}
	if !x.servers {
		args = append(args, "--ps", "none")
	}
	program := b.lm
	if x.torch {
		program = b.python
		args = append(args, "--env", "OMP_NUM_THREADS=1", "--env", "OPENBLAS_NUM_THREADS=1", "--env", "GLOO_SOCKET_IFNAME=eth0")
	}
	cmd := exec.CommandContext(ctx, b.plx, append(append(args, program), x.arguments(b.model, hosts)...)...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PLX_")
	}), "HOME="+b.cluster.Home)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // plx stops the job on an interrupt
	cmd.WaitDelay = time.Minute
	return cmd
}

// cpu is the machine's CPU time since boot, summed over all cores, in ticks:
// the busy time, and the whole time including idle time.
type cpu struct{ busy, all float64 }

// readCPU reads the first line of /proc/stat, see proc(5). Its fourth number
// is idle time and its fifth I/O wait. The last two numbers, guest times, do
// not count, because the numbers for user and nice include them.
func readCPU() (c cpu, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c, err
	}
	return parseCPU(string(text))
}

func parseCPU(text string) (c cpu, err error) {
	var n [8]float64
	if _, err := fmt.Sscanf(text, "cpu %f %f %f %f %f %f %f %f", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); err != nil {
		return c, fmt.Errorf("/proc/stat begins with %.80q: %w", text, err)
	}
	for i, ticks := range n {
		c.all += ticks
		if i != 3 && i != 4 {
			c.busy += ticks
		}
	}
	return c, nil
}

// busyCores returns the average number of busy cores since an earlier
// snapshot. The number includes the kernel's work for packets, and other
// programs.
func (c cpu) busyCores(before cpu) float64 {
	if c.all <= before.all {
		return 0
	}
	return (c.busy - before.busy) / (c.all - before.all) * float64(runtime.NumCPU())
}
