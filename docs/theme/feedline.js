// Wide tables and code scroll on their own: let the keyboard reach them too.
document.querySelectorAll('.table-wrapper, pre > code').forEach((part) => {
  if (part.scrollWidth > part.clientWidth) {
    part.tabIndex = 0;
  }
});

// The label that shows and hides the table of contents acts as a button: let it be one for
// the keyboard and for screen readers.
const toggle = document.getElementById('mdbook-sidebar-toggle');
if (toggle) {
  toggle.setAttribute('role', 'button');
  toggle.tabIndex = 0;
  toggle.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      toggle.click();
    }
  });
}
