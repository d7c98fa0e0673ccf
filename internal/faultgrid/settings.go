package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/plx-run/plx/internal/measured"
)

// settings are the program's flags.
type settings struct {
	run          *regexp.Regexp // cells; nil: all
	seed         uint64
	quick        bool
	list, render bool
	more         bool // keep the samples of other cells
	out, root    string
	plx, trainee string // programs, built where empty
	logs         string // folder
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("faultgrid", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("run", "only cells whose names match a regular `expression`, such as ps/.*/kill", func(text string) (err error) {
		s.run, err = regexp.Compile(text)
		return err
	})
	f.Uint64Var(&s.seed, "seed", 1, "`number` that the steps follow from behind which faults come")
	f.BoolVar(&s.quick, "quick", false, "a few cells, in a minute or two")
	f.BoolVar(&s.list, "list", false, "print the cells and what they must come to, and try none")
	f.BoolVar(&s.render, "render", false, "try nothing, write the table from the samples")
	f.BoolVar(&s.more, "more", false, "keep the samples of the cells that are not tried now")
	f.StringVar(&s.out, "out", "", "`folder` for reliability.md and reliability/ (default the module's docs)")
	f.StringVar(&s.plx, "plx", "", "`program` instead of the plx that is built")
	f.StringVar(&s.trainee, "trainee", "", "`program` instead of the trainee that is built")
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
	if s.root, err = measured.Root(); err != nil && (s.out == "" || s.plx == "" || s.trainee == "") {
		return nil, err
	}
	if s.out == "" {
		s.out = filepath.Join(s.root, "docs")
	}
	return s, nil
}

// samples is the file that they are in.
func (s *settings) samples() string { return filepath.Join(s.out, "reliability", "grid.json") }

// chosen are the cells that are wanted.
func (s *settings) chosen() []Cell {
	all := grid()
	if s.quick {
		all = quick()
	}
	return slices.DeleteFunc(all, func(c Cell) bool { return s.run != nil && !s.run.MatchString(c.Name()) })
}
