// Package driver opens a GPU through the binding that the program was built with:
// package cuda, or with the build tag cgocuda package cgocuda.
//
//	gpu, err := driver.Open(0)
package driver
