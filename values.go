package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// valueWord returns the placeholder for a flag's value in the help, or "" for
// a flag without a value. Completion and checks of the value depend on the
// placeholder. Words in capitals, such as FILE or JOB, describe a value.
// Lower-case words, as in auto|always|never, are the allowed values.
func valueWord(f cli.Flag) string {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	_, rest, _ := strings.Cut(doc.GetUsage(), "`")
	word, _, _ := strings.Cut(rest, "`")
	return word
}

// choices returns all allowed values of a flag, or nil if they are not a fixed
// list.
func choices(f cli.Flag) []string {
	all := strings.Split(valueWord(f), "|")
	if slices.ContainsFunc(all, isName) {
		return nil
	}
	return all
}

// isName reports whether a word of a placeholder describes a value, such as
// FILE, and is not itself an allowed value.
func isName(word string) bool { return word != strings.ToLower(word) || word == "" }

// wrongValue checks the value of a flag. For a wrong value it returns a
// description of the allowed values, and an example. It returns "", "" if
// value has the right form; the command may still reject it.
func wrongValue(f cli.Flag, value string) (want, right string) {
	var err error
	switch f.(type) {
	case *cli.DurationFlag:
		_, err = time.ParseDuration(value)
		want, right = "want a time with its unit, such as 90s, 5m or 1h", withUnit(value)
	case *cli.IntFlag, *cli.IntSliceFlag:
		_, err = strconv.ParseInt(value, 0, 0)
		want, right = "want a whole number", "3"
	case *cli.BoolFlag:
		_, err = strconv.ParseBool(value)
		want, right = "want true or false", "true"
	default:
		all := choices(f)
		if all == nil || slices.Contains(all, value) {
			return "", ""
		}
		return "want " + strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1], all[0]
	}
	if err == nil {
		return "", ""
	}
	return want, right
}

// withUnit returns the duration that a user probably meant with a number of
// days such as 2d, or a number without a unit. For any other text it returns
// an example.
func withUnit(value string) string {
	number, days := strings.CutSuffix(value, "d")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n < 0:
		return "90s"
	case days:
		return fmt.Sprintf("%dh", 24*n)
	}
	return fmt.Sprintf("%ds", n)
}

// pathWords lists the placeholders that stand for files and directories on
// this machine.
var pathWords = []string{"FILE", "DIR", "FILE-OR-FOLDER"}
