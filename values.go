package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// valueWord is the word that the help has for the value of a flag, "" for a flag that takes
// none. What completes a value and what is checked of it follow from this word: words in
// capitals, such as FILE or JOB, say what is to be named; all others, as in auto|always|never,
// are values.
func valueWord(f cli.Flag) string {
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	_, rest, _ := strings.Cut(doc.GetUsage(), "`")
	word, _, _ := strings.Cut(rest, "`")
	return word
}

// choices are all values that a flag may have, nil if there are others.
func choices(f cli.Flag) []string {
	all := strings.Split(valueWord(f), "|")
	if slices.ContainsFunc(all, isName) {
		return nil
	}
	return all
}

// isName reports whether a word of the help says what is to be named, and is no value.
func isName(word string) bool { return word != strings.ToLower(word) || word == "" }

// wrongValue says what is wanted in place of a value, and gives one that is right. It returns
// nothing for a value that may be right: a command checks more.
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

// withUnit is the time that somebody probably meant who wrote seconds without a unit, or days.
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

// pathWords are the words of the help for files and folders of this machine.
var pathWords = []string{"FILE", "DIR", "FILE-OR-FOLDER"}
