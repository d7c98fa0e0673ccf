package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Layout of the help text in characters: maximum line width, column of a
// flag's description, and column of a command's description.
const (
	helpWidth     = 100
	flagColumn    = 30
	commandColumn = 14
)

// group sets the heading under which plx's help lists the flags, and returns
// the flags.
func group(heading string, flags ...cli.Flag) []cli.Flag {
	for _, f := range flags {
		switch f := f.(type) {
		case *cli.StringFlag:
			f.Category = heading
		case *cli.StringSliceFlag:
			f.Category = heading
		case *cli.IntFlag:
			f.Category = heading
		case *cli.IntSliceFlag:
			f.Category = heading
		case *cli.DurationFlag:
			f.Category = heading
		case *cli.BoolFlag:
			f.Category = heading
		}
	}
	return flags
}

// printHelp prints the help of plx or of one command. It replaces the printer
// of package cli, which does not wrap lines and sorts the headings
// alphabetically.
func printHelp(w io.Writer, _ string, about any) {
	switch about := about.(type) {
	case *cli.App:
		fmt.Fprintf(w, "plx: %s\n\nUsage:\n  plx COMMAND [FLAGS] [ARGUMENTS]\n\nCommands:\n", about.Usage)
		for _, c := range about.VisibleCommands() {
			fmt.Fprint(w, entry(c.Name, c.Usage, commandColumn))
		}
		fmt.Fprintf(w, "\n%s\n\n%s\n", about.UsageText, about.Description)
	case *cli.Command:
		fmt.Fprint(w, commandHelp(about))
	}
}

func commandHelp(c *cli.Command) string {
	var text strings.Builder
	fmt.Fprintf(&text, "plx %s: %s\n\nUsage:\n  %s\n", c.Name, c.Usage, strings.TrimSpace("plx "+c.Name+" [FLAGS] "+c.ArgsUsage))
	if c.Description != "" {
		fmt.Fprintf(&text, "\n%s\n", c.Description)
	}
	heading := ""
	for _, f := range c.VisibleFlags() {
		if f == cli.HelpFlag {
			continue
		}
		if h := headingOf(f); h != heading {
			fmt.Fprintf(&text, "\n%s:\n", h)
			heading = h
		}
		text.WriteString(entry(flagHelp(f.(cli.DocGenerationFlag))))
	}
	return text.String()
}

// headingOf returns the heading under which the help lists a flag.
func headingOf(f cli.Flag) string { return cmp.Or(f.(cli.CategorizableFlag).GetCategory(), "Flags") }

// flagHelp returns the help entry of a flag: its names and placeholder, its
// description, and the column of the description.
func flagHelp(f cli.DocGenerationFlag) (left, right string, column int) {
	names := slices.Clone(f.(cli.Flag).Names())
	slices.SortFunc(names, func(a, b string) int { return len(a) - len(b) })
	for i, name := range names {
		names[i] = dashed(name)
	}
	left, right = strings.TrimSpace(strings.Join(names, ", ")+" "+valueWord(f.(cli.Flag))), strings.ReplaceAll(f.GetUsage(), "`", "")
	if value := defaultValue(f); value != "" {
		right += fmt.Sprintf(" (default: %s)", value)
	}
	return left, right, flagColumn
}

// defaultValue returns the default value of a flag as the help prints it, or "" if
// there is no default worth printing.
func defaultValue(f cli.DocGenerationFlag) string {
	value := strings.Trim(f.GetDefaultText(), `"`)
	if !f.TakesValue() || slices.Contains([]string{"0", "0s", "-1"}, value) {
		return ""
	}
	for _, zero := range []string{"m0s", "h0m"} { // for example, print 5m0s as 5m, and 1h0m0s as 1h
		if strings.HasSuffix(value, zero) {
			value = value[:len(value)-2]
		}
	}
	return value
}

// dashed returns a flag name with its dashes: one dash before a name of one
// letter, two before a longer name.
func dashed(name string) string { return strings.Repeat("-", min(len(name), 2)) + name }

// entry returns a help entry: left, and then right wrapped at helpWidth and
// indented to column.
func entry(left, right string, column int) string {
	line := fmt.Sprintf("  %-*s", column-2, left)
	if len(line) > column || strings.HasSuffix(line, left) {
		line += "\n" + strings.Repeat(" ", column)
	}
	var text strings.Builder
	at := column
	for i, word := range strings.Fields(right) {
		if i > 0 && at+1+len(word) > helpWidth {
			line, at = line+"\n"+strings.Repeat(" ", column), column
		} else if i > 0 {
			line, at = line+" ", at+1
		}
		line, at = line+word, at+len(word)
	}
	text.WriteString(line + "\n")
	return text.String()
}
