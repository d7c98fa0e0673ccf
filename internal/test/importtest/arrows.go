// Package importtest holds the rules of who may import whom, and that plx is a
// static program. It has no code; its tests read the module's source.
//
// A new package needs a row in the table of arrows_test.go.
package importtest
