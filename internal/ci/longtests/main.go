// Longtests runs the tests that are too long for make test: the fault grid, fuzzing,
// tests in files with the build tag long, and one point of a benchmark.
//
//	go run ./internal/ci/longtests                   # all parts
//	go run ./internal/ci/longtests -list
//	go run ./internal/ci/longtests -run '^fuzz '     # parts by name
//
// It needs root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	chosen := flag.String("run", "", "only parts whose names match a regular `expression`")
	list := flag.Bool("list", false, "print the parts and the time that each is expected to take")
	flag.Parse()
	match, err := regexp.Compile(*chosen)
	all, failed := parts(".")
	if err == nil {
		err = failed
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "longtests:", err)
		os.Exit(2)
	}
	all = slices.DeleteFunc(all, func(p part) bool { return !match.MatchString(p.name) })
	if *list {
		for _, p := range all {
			fmt.Printf("%-40s %v\n", p.name, p.expected)
		}
		return
	}
	begun := time.Now()
	r := runner{run: execute}
	if n := r.all(ctx, all); n > 0 {
		fmt.Fprintf(os.Stderr, "longtests: %d of %d parts failed\n", n, r.done)
		stop()
		os.Exit(1)
	}
	fmt.Printf("longtests: %d of %d parts passed in %v\n", r.done, len(all), time.Since(begun).Round(time.Second))
}

// lanes is how many parts of the fault grid run at a time: their jobs mostly wait for
// leases to run out.
const lanes = 2

// runner runs parts one after the other, and neighbouring ones that are not alone in
// lanes.
type runner struct {
	run func(context.Context, part) error

	mu     sync.Mutex
	done   int // parts that ended
	failed int
}

// all runs the parts, and returns how many failed.
func (r *runner) all(ctx context.Context, all []part) int {
	var together sync.WaitGroup
	free := make(chan struct{}, lanes)
	for _, p := range all {
		if p.alone {
			together.Wait()
			r.one(ctx, p)
			continue
		}
		free <- struct{}{}
		together.Go(func() {
			r.one(ctx, p)
			<-free
		})
	}
	together.Wait()
	return r.failed
}

// one runs a part. A part that hangs is ended, long after a slow machine has done it.
func (r *runner) one(ctx context.Context, p part) {
	if ctx.Err() != nil {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 5*p.expected+10*time.Minute)
	defer cancel()
	err := r.run(ctx, p)
	r.mu.Lock()
	defer r.mu.Unlock()
	said := "ok"
	if err != nil {
		said = "FAILED: " + err.Error()
		r.failed++
	}
	r.done++
	fmt.Printf("== %s: %s, %.0f s, expected %.0f\n", p.name, said, time.Since(began).Seconds(), p.expected.Seconds())
}

// execute runs a part's commands. It prints their output only if one fails.
func execute(ctx context.Context, p part) error {
	for _, words := range p.commands {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = time.Minute
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("== %s: %q\n%s\n", p.name, words, out)
			return fmt.Errorf("%q: %w", words, err)
		}
	}
	return nil
}
