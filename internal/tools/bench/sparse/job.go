package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// Run is one run of one system.
type Run struct {
	System string    `json:"system"`
	Hosts  int       `json:"hosts"`
	Rate   string    `json:"rate"`
	Round  int       `json:"round"`
	Began  string    `json:"began"`
	First  int       `json:"first"`  // number of the first step that counts
	Millis []float64 `json:"millis"` // of each step that counts
	Words  float64   `json:"words"`  // per second, over all of them
	Cores  float64   `json:"cores"`  // busy ones of the machine meanwhile
	Link   float64   `json:"link"`   // bytes per step, busiest direction of the busiest link
	Homes  homes     `json:"homes,omitempty"`
	Choice int       `json:"choice,omitempty"`
	Said   []string  `json:"said,omitempty"` // about variables that move
	Failed string    `json:"failed,omitempty"`
}

// StepMillis is the mean time of a step.
func (r Run) StepMillis() float64 {
	sum := 0.0
	for _, ms := range r.Millis {
		sum += ms
	}
	return sum / float64(len(r.Millis))
}

// homes are the servers of variables that live whole on one, by their names.
type homes map[string]string

// follower reads what a job prints and measures it.
type follower struct {
	run    *Run
	words  int // of a step
	hosts  []*testhosts.Host
	window window
	settle int // steps behind a move
	before look
	after  look
	last   []string // lines, for a failure
	log    io.Writer
}

// look is the machine at one moment.
type look struct {
	cpu      cpu
	from, to []uint64 // bytes by link
}

func (f *follower) look() (l look, err error) {
	if l.cpu, err = readCPU(); err != nil {
		return l, err
	}
	for _, h := range f.hosts {
		from, to, err := h.Traffic()
		if err != nil {
			return l, err
		}
		l.from, l.to = append(l.from, from), append(l.to, to)
	}
	return l, nil
}

// follow reads to the end of what counts; done is false where the job has
// ended before.
func (f *follower) follow(out io.Reader) (done bool, err error) {
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		fmt.Fprintln(f.log, line) // a log that cannot be written is no reason to stop
		if done, err := f.line(line, time.Now()); done || err != nil {
			return done, err
		}
	}
	return false, scanner.Err()
}

func (f *follower) line(line string, now time.Time) (done bool, err error) {
	number, words, ok := readStep(line)
	if !ok {
		if f.last = append(f.last, line); len(f.last) > 12 {
			f.last = f.last[1:]
		}
		if found := homeLine.FindStringSubmatch(line); found != nil {
			f.run.addHome(found[1], found[2])
		} else if moveLine.MatchString(line) {
			f.run.Said = append(f.run.Said, line)
			f.window.disturbed(f.settle)
			if found := choiceLine.FindStringSubmatch(line); found != nil {
				_, err = fmt.Sscan(found[1], &f.run.Choice)
			}
		}
		return false, err
	}
	opens := f.window.step(number, 1000*float64(f.words)/words, now)
	if opens {
		f.before, err = f.look()
	}
	if f.window.finished {
		f.after, err = f.look()
	}
	return f.window.finished, err
}

// tell fills the run.
func (f *follower) tell() { f.run.fill(&f.window, f.before, f.after, f.words) }

func (r *Run) addHome(variable, home string) {
	if r.Homes == nil {
		r.Homes = homes{}
	}
	r.Homes[variable] = home
}

// fill records the steps of a window, in each of which words were trained, and
// what the machine did from one look to the other.
func (r *Run) fill(w *window, before, after look, words int) {
	r.First, r.Millis = w.begin, w.millis
	sum := 0.0
	for i, ms := range r.Millis {
		sum += ms
		r.Millis[i] = math.Round(ms*100) / 100
	}
	steps := float64(len(r.Millis))
	r.Words = 1000 * steps * float64(words) / sum
	r.Cores = after.cpu.busyCores(before.cpu)
	// Lines come late by what waits in the links: a rate knows nothing of that.
	perStep := sum / steps / 1000 / after.cpu.at.Sub(before.cpu.at).Seconds()
	for i := range before.from {
		busiest := max(after.from[i]-before.from[i], after.to[i]-before.to[i])
		r.Link = max(r.Link, math.Round(float64(busiest)*perStep))
	}
}

// measure runs a system until it has been measured, and stops it.
func (b *bench) measure(ctx context.Context, x system, hosts int, rate string, round int) Run {
	r := Run{System: x.key, Hosts: hosts, Rate: rate, Round: round, Began: time.Now().UTC().Format(time.RFC3339)}
	if err := b.follow(ctx, x, &r); err != nil {
		r.Failed = err.Error()
	}
	return r
}

func (b *bench) follow(ctx context.Context, x system, r *Run) error {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	log, err := b.openLog(r)
	if err != nil {
		return err
	}
	defer log.Close() // for a reader only
	cmd := b.command(ctx, x, r.Hosts)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close() // only read
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return err
	}
	f := &follower{run: r, words: b.model.words(r.Hosts), hosts: b.cluster.Hosts[:r.Hosts], window: b.windowOf(x), settle: min(b.settle, 20), log: log}
	done, failed := f.follow(out)
	ended := b.stop(cmd, out, log)
	if !done || failed != nil {
		return errors.Join(failed, ctx.Err(), fmt.Errorf("it ended too early: %v: %s", ended, strings.Join(f.last, " / ")))
	}
	f.tell()
	return nil
}

// windowOf: what places its variables first is given its steps however long
// they take, others at least two and ten seconds.
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

// command is the job. One thread computes, as a worker of plx has.
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
	args = append(append(args, program), x.arguments(b.model, hosts, b.known)...)
	cmd := exec.CommandContext(ctx, b.plx, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PLX_")
	}), "HOME="+b.cluster.Home)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // plx ends its job
	cmd.WaitDelay = time.Minute
	return cmd
}

// stop ends a job as Ctrl-C does. It reads on meanwhile, or plx could not
// write.
func (b *bench) stop(cmd *exec.Cmd, out io.Reader, log io.Writer) error {
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		_, _ = io.Copy(log, out) // as in follow
	}()
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	<-rest
	return err
}

// openLog is a file for what a run prints, where that is wanted.
func (b *bench) openLog(r *Run) (io.WriteCloser, error) {
	if b.logs == "" {
		return nowhere{io.Discard}, nil
	}
	name := fmt.Sprintf("%s-%dhosts-%s-round%d.log", r.Rate, r.Hosts, r.System, r.Round)
	return os.Create(filepath.Join(b.logs, name))
}

type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }
