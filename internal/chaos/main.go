// Chaos tries what plx promises of runs that meet faults: each fault, on each
// victim, in each architecture, on hosts of package testhosts. It kills and freezes
// processes, cuts and slows links, breaks connections in the middle of a frame,
// fills disks, and takes the power away. The weights at the end must be the same
// bits as without the fault. If workers do not wait for each other there are no such
// bits: then it counts how often every gradient was applied (audit.go).
//
//	make fault-grid                                # all cells, about an hour: docs/reliability.md
//	make fault-grid ARGS="--run 'ps/worker/.*'"    # some cells; the samples of others stay
//	go run ./internal/chaos --part 3/16 --out DIR  # every 16th cell from the third on
//	go run ./internal/chaos --list                 # the cells, and what must become of them
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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/measured"
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

// settings are the program's flags.
type settings struct {
	run         *regexp.Regexp // names of cells; nil means all
	part, parts int            // every parts-th cell from number part on, counted from 1; 0 means all
	seed        uint64
	list        bool
	out, root   string // folder of the report, and the module's
	plx         string // the program; "" means that it is built
	logs        string // folder; "" means none
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{parts: 1}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("run", "only cells whose names match a regular `expression`, such as ps/.*/kill", func(text string) (err error) {
		s.run, err = regexp.Compile(text)
		return err
	})
	f.Func("part", "only a `part` of the cells, such as 3/16", func(text string) error {
		if _, err := fmt.Sscanf(text, "%d/%d", &s.part, &s.parts); err != nil || s.part < 1 || s.part > s.parts {
			return errors.New("want a part and the number of parts, such as 3/16")
		}
		return nil
	})
	f.Uint64Var(&s.seed, "seed", 1, "`number` from which the steps follow after which faults come")
	f.BoolVar(&s.list, "list", false, "print the cells and what must become of them, and try none")
	f.StringVar(&s.out, "out", "", "`folder` for reliability.md and reliability/ (default the module's docs)")
	f.StringVar(&s.plx, "plx", "", "`program` instead of the plx that is built")
	f.StringVar(&s.logs, "logs", "", "`folder` for what plx prints in every cell")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q: want flags only", f.Arg(0))
	}
	if len(s.chosen()) == 0 {
		return nil, errors.New("--run: no cell has such a name, see --list")
	}
	var err error
	if s.root, err = measured.Root(); err != nil {
		return nil, err
	}
	if s.out == "" {
		s.out = filepath.Join(s.root, "docs")
	}
	return s, nil
}

// samples is the file of the samples.
func (s *settings) samples() string { return filepath.Join(s.out, "reliability", "grid.json") }

// chosen are the cells to try.
func (s *settings) chosen() (cells []Cell) {
	for i, c := range grid() {
		if (s.part == 0 || i%s.parts == s.part-1) && (s.run == nil || s.run.MatchString(c.Name())) {
			cells = append(cells, c)
		}
	}
	return cells
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
