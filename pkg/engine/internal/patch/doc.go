// Package patch compares objects, and makes patches and their inverse. All of it is pure: it
// sends no request.
package patch
