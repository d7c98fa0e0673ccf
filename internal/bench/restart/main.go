// Restart measures what it saves that processes which were not lost stay for the
// next generation: a worker is killed, and how long it takes until training makes
// a step again, with and without --fresh-process, by turns, on three hosts of
// package testhosts. It needs root and Linux.
//
//	make bench-restart    # some minutes: the table of docs/restarts.md
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/measured"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rounds := flag.Int("rounds", 11, "how often each is measured")
	flag.Parse()
	if err := run(ctx, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// model is a language model that is small for its data, which is made when the
// program begins.
var model = []string{"--vocabulary=20000", "--width=16", "--hidden=16", "--length=4", "--batch-size=12", "--samples=50",
	"--steps=100000", "--ckpt-dir=kept", "--ckpt-every-steps=50"}

// kinds are what is compared: the words of the program's command line.
var kinds = []struct {
	name string
	more []string
}{{"kept", nil}, {"new", []string{"--fresh-process"}}}

// run measures all and writes it down.
func run(ctx context.Context, rounds int) error {
	root, err := measured.Root()
	if err != nil {
		return err
	}
	b := &bench{}
	if err := b.open(root); err != nil {
		return err
	}
	defer b.close() // what it leaves the next one removes
	took := make([][]time.Duration, len(kinds))
	for round := range rounds {
		for i := range kinds {
			i = (i + round) % len(kinds)
			t, err := b.measure(ctx, fmt.Sprintf("bench-%d-%s", round, kinds[i].name), kinds[i].more)
			if err != nil {
				return fmt.Errorf("round %d, %s processes: %w", round, kinds[i].name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d, %s processes: %v\n", round, kinds[i].name, t.Round(time.Millisecond))
			took[i] = append(took[i], t)
		}
	}
	return measured.Insert(filepath.Join(root, "docs", "restarts.md"), "Restarts", "kept", page(took, measured.Describe(root, "make bench-restart")))
}

// page is the table.
func page(took [][]time.Duration, m measured.Machine) string {
	var b strings.Builder
	b.WriteString("| processes that were not lost | until the next step, median | least | most |\n|---|---|---|---|\n")
	for i, all := range took {
		slices.Sort(all)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", kinds[i].name, tenths(all[len(all)/2]), tenths(all[0]), tenths(all[len(all)-1]))
	}
	fmt.Fprintf(&b, "\n`%s`, %d times each, by turns; %s, %d cores, commit %s, %s.\n", m.Command, len(took[0]), m.Processor, m.Cores, m.Commit, m.Date)
	return b.String()
}

func tenths(t time.Duration) string { return fmt.Sprintf("%.2f s", t.Seconds()) }
