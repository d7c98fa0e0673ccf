package console

import "github.com/charmbracelet/x/ansi"

// Level is what a text is to the user. A colour shows it.
type Level uint8

// The levels: neither good nor bad, then good, doubtful and bad.
const (
	Plain Level = iota
	Good
	Doubtful
	Bad
)

// Paint returns the text in the colour of the level if colour is set.
func (l Level) Paint(text string, colour bool) string {
	if !colour || l == Plain {
		return text
	}
	of := map[Level]ansi.BasicColor{Good: ansi.Green, Doubtful: ansi.Yellow, Bad: ansi.Red}
	return ansi.Style{}.ForegroundColor(of[l]).Styled(text)
}
