package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"

	"github.com/plx-run/plx/internal/test/measured"
)

// settings are the program's flags.
type settings struct {
	run         *regexp.Regexp // expression for names of cells; nil: all
	part, parts int            // only every parts-th cell, beginning with number part, from 1; part 0: all
	seed        uint64         // from which the steps follow after which faults come
	list        bool           // print the cells and try none
	out, root   string         // folder of the report; root of the module
	plx         string         // path of the plx to try; "": it is built
	logs        string         // folder for what plx prints in every cell; "": it is not kept
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
