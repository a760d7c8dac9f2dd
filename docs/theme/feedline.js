// Wide tables and code scroll on their own: let the keyboard reach them too.
document.querySelectorAll('.table-wrapper, pre > code').forEach((part) => {
  if (part.scrollWidth > part.clientWidth) {
    part.tabIndex = 0;
  }
});
