// Package importtest tests the rules about which package may import which, and
// that the plx binary is statically linked. It contains only tests, which read
// the module's source.
//
// When you add a package, add a row to the table in arrows_test.go.
package importtest
