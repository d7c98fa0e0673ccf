// Chaos tries what plx promises of runs that meet faults: each fault, on each
// victim, in each architecture, on hosts of package testhosts. It kills and freezes
// processes, cuts and slows links, breaks connections in the middle of a frame,
// fills disks, and takes the power away. The weights at the end must be the same
// bits as without the fault. If workers do not wait for each other there are no such
// bits: then it counts how often every gradient was applied (audit.go).
//
//	make fault-grid                                # all cells, about an hour: docs/reliability.md
//	make fault-grid ARGS="--run 'ps/worker/.*'"    # some cells; the samples of others stay
//	go run ./internal/test/chaos --part 3/16 --out DIR  # every 16th cell from the third on
//	go run ./internal/test/chaos --list                 # the cells, and what must become of them
//
// What must become of a cell stands in promise.go before anybody tries it. A fault
// comes after a step that follows from --seed and the cell's name, as soon as the
// chief reports that step, and each cell proves that it came. A cell that breaks its
// promise is in the table as failed, and the program exits with 1.
//
// It needs root, Linux, and the packages that scripts/install-test-tools names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/test/measured"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := tryAll(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		stop()
		os.Exit(1)
	}
}

// tryAll does what the arguments say.
func tryAll(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if s.list {
		return list(stdout, s.chosen())
	}
	r := &Results{}
	if s.run != nil || s.part > 0 { // the samples of other cells stay
		if err := measured.Load(s.samples(), r); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		r.References = nil
	}
	r.Machine = measured.Describe(s.root, command(args))
	l, err := openLab(s, r, stderr)
	if err != nil {
		return err
	}
	if err := errors.Join(l.all(ctx), l.close()); err != nil {
		return err
	}
	tried := &Results{Samples: slices.DeleteFunc(slices.Clone(r.Samples), func(old Sample) bool {
		return !slices.ContainsFunc(s.chosen(), func(c Cell) bool { return c.Name() == old.Cell })
	})}
	return errors.Join(r.write(s), tried.failures())
}

// command is what repeats this run, but for where its output went.
func command(args []string) string {
	var kept []string
	for i := 0; i < len(args); i++ {
		switch name, _, whole := strings.Cut(strings.TrimLeft(args[i], "-"), "="); name {
		case "logs", "out", "plx":
			if !whole {
				i++
			}
		default:
			kept = append(kept, args[i])
		}
	}
	if len(kept) == 0 {
		return "make fault-grid"
	}
	return fmt.Sprintf("make fault-grid ARGS=%q", strings.Join(kept, " "))
}

// list prints cells and promises.
func list(w io.Writer, cells []Cell) error {
	for _, c := range cells {
		p := c.promise()
		if _, err := fmt.Fprintf(w, "%-36s %-9s within %-5v %s\n", c.Name(), p.outcome, p.within, c.Fault.row().title); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d cells\n", len(cells))
	return err
}
