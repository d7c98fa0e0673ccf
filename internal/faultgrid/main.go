// Faultgrid tries what plx promises of runs that meet faults: each fault, on
// each victim, in each architecture, on hosts of package testhosts. It kills
// and freezes processes, cuts and slows links, breaks connections in the middle
// of a frame, fills disks, takes the power away, and wants the weights at the
// end to be the same bits as without the fault. Where workers do not wait for
// each other there are no such bits: there it counts how often every gradient
// was applied (audit.go).
//
//	make fault-grid                                   # all of it, about an hour: docs/reliability.md
//	make fault-grid ARGS="--run 'ps/worker/.*'"       # a part
//	go run ./internal/faultgrid --quick --out DIR     # a few cells, in a minute or two
//	go run ./internal/faultgrid --list                # the cells, and what they must come to
//	go run ./internal/faultgrid --render              # write the table from the samples again
//
// What a cell must come to is written down in promise.go, before it is tried. A
// fault comes behind a step that follows from --seed and the cell's name, as
// soon as the chief reports that step, and each cell proves that it came. A
// cell that has not kept its promise is in the table as failed, and the program
// exits with 1.
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
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/measured"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := tryAll(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "faultgrid:", err)
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
	if s.render {
		r := &Results{}
		if err := measured.Load(s.samples(), r); err != nil {
			return err
		}
		return r.write(s)
	}
	r := &Results{}
	if s.more {
		if err := measured.Load(s.samples(), r); err != nil {
			return err
		}
		r.References = nil
	}
	r.Machine = measured.Describe(s.root, command(args))
	b, err := openBench(s, r, stderr)
	if err != nil {
		return err
	}
	err = errors.Join(b.all(ctx), b.close())
	if err != nil {
		return err
	}
	return errors.Join(r.write(s), r.failures())
}

// command is what repeats this run. Where its output went is nobody's business.
func command(args []string) string {
	var kept []string
	for i := 0; i < len(args); i++ {
		switch name, _, whole := strings.Cut(strings.TrimLeft(args[i], "-"), "="); name {
		case "logs", "out", "plx", "trainee":
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
		if _, err := fmt.Fprintf(w, "%-36s %-9s within %-5v %s\n", c.Name(), p.outcome, p.within, described[c.Fault]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d cells\n", len(cells))
	return err
}
